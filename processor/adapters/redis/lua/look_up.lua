-- ARGV[2]: ids, 16 bytes each. ARGV[3]: the last slot that is due. ARGV[4]: at most how many slots.
-- Returns the identity, the entries in pieces (joining them is cheaper outside), and for each due slot, earliest
-- first: its number, its slab (sequence, ids, sequence, ids...) and the entries in pieces.
if fenced() then return FENCED end

local ID = 'c' .. ID_BYTES

local function entries(ids, pieces)
  for at = 1, #ids, MANY * ID_BYTES do
    local count = math.min(MANY, (#ids + 1 - at) / ID_BYTES)
    local chunk = { struct.unpack(string.rep(ID, count), ids, at) } -- and where they end
    pieces[#pieces + 1] = redis.call('HMGET', ENTRIES, unpack(chunk, 1, count))
  end
  return pieces
end

local slabs = {}
for _, slot in ipairs(redis.call('ZRANGEBYSCORE', SLOTS, '-inf', ARGV[3], 'LIMIT', 0, ARGV[4])) do
  if is_elsewhere(slot) then return elsewhere(slot) end
  local content = redis.call('HGETALL', slab(slot))
  local pieces = {}
  for index = 2, #content, 2 do
    entries(content[index], pieces)
  end
  slabs[#slabs + 1] = { slot, content, pieces }
end

return { redis.call('HGET', META, 'identity'), entries(ARGV[2], {}), slabs }
