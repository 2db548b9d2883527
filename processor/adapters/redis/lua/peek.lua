-- ARGV[2...]: names of fields. Returns the identity and their values. For people who look: asks for no token.
local names = {}
for index = 2, #ARGV do
  names[index - 1] = ARGV[index]
end
return { redis.call('HGET', META, 'identity'), #names > 0 and redis.call('HMGET', FIELDS, unpack(names)) or {} }
