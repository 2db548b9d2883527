-- ARGV[2]: where to go on ("" to start). ARGV[3]: about how many bytes. ARGV[4]: the section after which to stop.
-- Returns the identity, where the next page starts ("" at the end), packed writes, and "1" if this is another server
-- process than the one that gave the cursor.
if fenced() then return FENCED end
local damage = damaged()
if damage then return damage end

local most, stop = tonumber(ARGV[3]), ARGV[4]

-- HSCAN's cursors mean nothing to another server: a replica that took over, a restarted process or the next owner of
-- a hash slot keeps the same hash in another order. Then we begin again, because a page may repeat but never omit.
local function server()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%x+)') or '-'
end

local here = server()
local section, slot, scan, there = string.match(ARGV[2], '^(%a+) (%d+) (%d+) (%S+)$')
local moved = there ~= nil and there ~= here
if there ~= here then
  section, slot, scan = 'fields', '0', '0'
end

local parts, count, size = {}, 0, 0

local function add(part)
  count = count + 1
  parts[count] = part
  size = size + #part
end

local function scan_hash(key, step, pack)
  local reply = redis.call('HSCAN', key, scan, 'COUNT', step)
  scan = reply[1]
  local pairs_of = reply[2]
  for index = 1, #pairs_of, 2 do
    add(pack(pairs_of[index], pairs_of[index + 1]))
  end
  return scan == '0'
end

local function pack_field(name, value)
  return 'S' .. struct.pack('>I2', #name) .. name .. struct.pack('>I4', #value) .. value
end

local function pack_entry(id, value)
  return 'E' .. id .. struct.pack('>I2', #value) .. value
end

local function pack_slab(sequence, ids)
  return 'D' .. struct.pack('>I4', tonumber(slot)) .. sequence .. struct.pack('>I4', #ids) .. ids
end

local function scan_slabs()
  local found = redis.call('ZRANGEBYSCORE', SLOTS, slot, '+inf', 'LIMIT', 0, 1)[1]
  if not found then return true end
  if found ~= slot then
    slot, scan = found, '0' -- a slab we were in the middle of may have been dropped
  end
  if is_elsewhere(slot) then error(elsewhere(slot)) end
  if scan_hash(slab(slot), 16, pack_slab) then
    slot = decimal(tonumber(slot) + 1)
  end
  return false
end

local steps = {
  fields = function() return scan_hash(FIELDS, 16, pack_field) end,
  -- an entry takes about 43 bytes
  entries = function() return scan_hash(ENTRIES, math.floor(math.min(256, 1 + (most - size) / 43)), pack_entry) end,
  slabs = scan_slabs,
}
local following = { fields = 'entries', entries = 'slabs' }

while section and size < most do
  if steps[section]() then
    section = section ~= stop and following[section] or nil
    scan = '0'
  end
end

local cursor = section and table.concat({ section, slot, scan, here }, ' ') or ''
return { redis.call('HGET', META, 'identity'), cursor, table.concat(parts), moved and '1' or '0' }
