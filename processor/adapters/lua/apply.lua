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

-- Entries are most of the bytes, so they are kept flat, in chunks of `id, value, id, value...` for one HSET each, in the
-- order they came in; `gone` are those whose last operation was to delete them. Of fields and slabs only what is left
-- when later operations have overwritten earlier ones; false stands for "deleted".
local chunks, chunk, count = {}, {}, 0
local gone, any_gone = {}, false
local fields, slabs = {}, {}

local ENDED = { err = 'MALFORMED the writes end in the middle of an operation' }

local function u16(at)
  local high, low = byte(BLOB, at, at + 1)
  if not low then error(ENDED) end
  return high * 256 + low
end

local function u32(at)
  return u16(at) * 65536 + u16(at + 2)
end

local function sized(at, size)
  return sub(BLOB, at, at + size - 1), at + size
end

-- Each takes the place after the letter and returns that of the next operation.
local operations = {
  [byte('S')] = function(at)
    local name
    name, at = sized(at + 2, u16(at))
    fields[name], at = sized(at + 4, u32(at))
    return at
  end,
  [byte('s')] = function(at)
    local name
    name, at = sized(at + 2, u16(at))
    fields[name] = false
    return at
  end,
  [byte('D')] = function(at)
    local slot = decimal(u32(at))
    local sequence = sub(BLOB, at + 4, at + 11) -- stays bytes: a Lua number holds only 53 bits
    slabs[slot] = slabs[slot] or { puts = {} }
    slabs[slot].puts[sequence], at = sized(at + 16, u32(at + 12))
    return at
  end,
  [byte('d')] = function(at)
    slabs[decimal(u32(at))] = { dropped = true, puts = {} }
    return at + 4
  end,
}

local SET, DELETE = byte('E'), byte('e')

local function read()
  local at = 1
  while at <= LENGTH do
    local letter = byte(BLOB, at)
    if letter == SET then
      local high, low = byte(BLOB, at + 17, at + 18)
      if not low then error(ENDED) end
      local id, last = sub(BLOB, at + 1, at + 16), at + 18 + high * 256 + low
      chunk[count + 1], chunk[count + 2] = id, sub(BLOB, at + 19, last)
      count = count + 2
      if count == MANY then
        chunks[#chunks + 1] = chunk
        chunk, count = {}, 0
      end
      if any_gone then gone[id] = nil end
      at = last + 1
    elseif letter == DELETE then
      gone[sub(BLOB, at + 1, at + 16)] = true
      any_gone = true
      at = at + 17
    else
      local operation = operations[letter]
      if not operation then error({ err = 'MALFORMED unknown operation at byte ' .. (at - 1) }) end
      at = operation(at + 1)
    end
  end
  if at ~= LENGTH + 1 then error(ENDED) end
end

local function write_entries()
  if count > 0 then chunks[#chunks + 1] = chunk end
  for index = 1, #chunks do
    redis.call('HSET', ENTRIES, unpack(chunks[index]))
  end
  local dead, deads = {}, 0
  for id in pairs(gone) do
    deads = deads + 1
    dead[deads] = id
    if deads == MANY then
      redis.call('HDEL', ENTRIES, unpack(dead))
      dead, deads = {}, 0
    end
  end
  if deads > 0 then redis.call('HDEL', ENTRIES, unpack(dead)) end
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
redis.call('HLEN', ENTRIES) -- fails on a key of another type, as commands before us in a transaction have

local fine, problem = pcall(read)
if not fine then return redis.error_reply(type(problem) == 'table' and problem.err or tostring(problem)) end
for slot in pairs(slabs) do
  if is_elsewhere(slot) then return elsewhere(slot) end
end

write_entries()
write(FIELDS, fields)
for slot, change in pairs(slabs) do
  write_slab(slot, change)
end
redis.call('HSET', META, 'identity', ARGV[2])
return 'done'
