-- Write or refresh the record of a process, unless there is somebody else's: then that one is returned.
-- KEYS[1]: the record. ARGV: our record, our token, milliseconds until it expires, the token of a record to replace.
local found = redis.call('GET', KEYS[1])
if found then
  local read, record = pcall(cjson.decode, found)
  -- A later form is somebody, whatever its token says.
  local known = read and type(record) == 'table' and record.form == 1
  if not known or (record.token ~= ARGV[2] and (ARGV[4] == '' or record.token ~= ARGV[4])) then
    return found
  end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return false
