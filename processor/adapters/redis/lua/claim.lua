redis.call('HSET', META, 'token', ARGV[1])
return 'done'
