-- ARGV[2]: ids, 16 bytes each. ARGV[3]: the last slot that is due. ARGV[4]: at most how many slots. ARGV[5]: at most
-- how many ids of them, in whole parts, unless the first part alone has more; -1: all (see core/stream/expiry.py).
-- Returns the identity, the entries in pieces (joining them is cheaper outside), and for each due slot, earliest
-- first: its number, the parts taken of it (sequence, ids, sequence, ids...), the entries in pieces, whether no part is
-- left.
if fenced() then return FENCED end
local damage = damaged()
if damage then return damage end

local ID = 'c' .. ID_BYTES

local function entries(ids, pieces)
  for at = 1, #ids, MANY * ID_BYTES do
    local count = math.min(MANY, (#ids + 1 - at) / ID_BYTES)
    local chunk = { struct.unpack(string.rep(ID, count), ids, at) } -- and where they end
    pieces[#pieces + 1] = redis.call('HMGET', ENTRIES, unpack(chunk, 1, count))
  end
  return pieces
end

-- The sequences of a slab in order. Bytes are compared as numbers: Lua compares strings as the server's locale does.
local function sequences(key)
  local names = redis.call('HKEYS', key)
  local numbers = {}
  for _, name in ipairs(names) do
    local high, low = struct.unpack('>I4I4', name)
    numbers[name] = high * 4294967296 + low
  end
  table.sort(names, function(one, other) return numbers[one] < numbers[other] end)
  return names
end

local slabs, count, most = {}, 0, tonumber(ARGV[5])

-- Takes parts of a slot; false once it has enough.
local function take(slot)
  if is_elsewhere(slot) then error(elsewhere(slot)) end
  local key, content, pieces, left = slab(slot), {}, {}, false
  for _, sequence in ipairs(sequences(key)) do
    local ids = redis.call('HGET', key, sequence)
    if ids ~= '' then
      count = count + #ids / ID_BYTES
      if most >= 0 and count > most and (#content > 0 or #slabs > 0) then
        left = true
        break
      end
      content[#content + 1] = sequence
      content[#content + 1] = ids
      entries(ids, pieces)
    end
  end
  if #content > 0 or not left then slabs[#slabs + 1] = { slot, content, pieces, left and 0 or 1 } end
  return not left
end

for _, slot in ipairs(redis.call('ZRANGEBYSCORE', SLOTS, '-inf', ARGV[3], 'LIMIT', 0, ARGV[4])) do
  if not take(slot) then break end
end

return { redis.call('HGET', META, 'identity'), entries(ARGV[2], {}), slabs }
