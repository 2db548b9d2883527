-- Delete the record of a process if it is still its own. KEYS[1]: the record. ARGV[1]: our token.
local found = redis.call('GET', KEYS[1])
local read, record = pcall(cjson.decode, found or '')
if read and type(record) == 'table' and record.form == 1 and record.token == ARGV[1] then
  redis.call('UNLINK', KEYS[1])
end
return false
