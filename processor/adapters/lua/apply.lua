-- ARGV[2]: the identity after. ARGV[3]: the sequence before. ARGV[4]: packed writes (see core/writes.py).
-- The blob is read to its end before anything is written, so a broken one changes nothing.
if fenced() then return FENCED end

local IDENTITY = '^1:([^:]+):(%d+):'
local BLOB, LENGTH = ARGV[4], #ARGV[4]
local sub, byte = string.sub, string.byte -- looked up once: this loop is most of the time

local function verdict()
  local stored = redis.call('HGET', META, 'identity')
  local after_lineage, after = string.match(ARGV[2], IDENTITY)
  local before = tonumber(ARGV[3])
  local lineage, sequence = after_lineage, 0
  if stored then
    lineage, sequence = string.match(stored, IDENTITY)
    if not sequence then return redis.error_reply('UNREADABLE identity') end
  end
  sequence = tonumber(sequence)
  if sequence >= tonumber(after) then return 'already' end
  if sequence ~= before or (before > 0 and lineage ~= after_lineage) then return 'gap' end
  return nil
end

-- What is left of the operations when later ones have overwritten earlier ones; false stands for "deleted".
local entries, fields, slabs = {}, {}, {}

local at = 1

local function take(size)
  local start = at
  at = at + size
  if at > LENGTH + 1 then error({ err = 'MALFORMED the writes end in the middle of an operation' }) end
  return sub(BLOB, start, at - 1)
end

local function u16()
  local high, low = byte(take(2), 1, 2)
  return high * 256 + low
end

local function u32()
  return (struct.unpack('>I4', take(4)))
end

local operations = {
  E = function()
    local id = take(ID_BYTES)
    entries[id] = take(u16())
  end,
  e = function() entries[take(ID_BYTES)] = false end,
  S = function()
    local name = take(u16())
    fields[name] = take(u32())
  end,
  s = function() fields[take(u16())] = false end,
  D = function()
    local slot = decimal(u32())
    local sequence = take(8) -- stays bytes: a Lua number holds only 53 bits
    slabs[slot] = slabs[slot] or { puts = {} }
    slabs[slot].puts[sequence] = take(u32())
  end,
  d = function() slabs[decimal(u32())] = { dropped = true, puts = {} } end,
}

local function read()
  while at <= LENGTH do
    local operation = operations[take(1)]
    if not operation then error({ err = 'MALFORMED unknown operation at byte ' .. (at - 2) }) end
    operation()
  end
end

local function write(key, values)
  local set, sets, dead, deads = {}, 0, {}, 0
  for name, value in pairs(values) do
    if value then
      set[sets + 1], set[sets + 2] = name, value
      sets = sets + 2
      if sets == MANY then
        redis.call('HSET', key, unpack(set))
        set, sets = {}, 0
      end
    else
      deads = deads + 1
      dead[deads] = name
      if deads == MANY then
        redis.call('HDEL', key, unpack(dead))
        dead, deads = {}, 0
      end
    end
  end
  if sets > 0 then redis.call('HSET', key, unpack(set)) end
  if deads > 0 then redis.call('HDEL', key, unpack(dead)) end
end

local function write_slab(slot, change)
  if change.dropped then
    redis.call('UNLINK', slab(slot))
    redis.call('ZREM', SLOTS, slot)
  end
  if next(change.puts) then
    write(slab(slot), change.puts)
    redis.call('ZADD', SLOTS, slot, slot)
  end
end

local answer = verdict()
if answer then return answer end

local fine, problem = pcall(read)
if not fine then return redis.error_reply(type(problem) == 'table' and problem.err or tostring(problem)) end
for slot in pairs(slabs) do
  if is_elsewhere(slot) then return elsewhere(slot) end
end

write(ENTRIES, entries)
write(FIELDS, fields)
for slot, change in pairs(slabs) do
  write_slab(slot, change)
end
redis.call('HSET', META, 'identity', ARGV[2])
return 'done'
