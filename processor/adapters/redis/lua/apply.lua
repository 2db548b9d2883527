-- ARGV[2]: the identity after. ARGV[3]: the sequence before. ARGV[4]: packed writes (see core/writes.py).
-- ARGV[5]: '1' if entries were written just before in the same transaction, so that their number says nothing.
-- The blob is read to its end before anything is written, so a broken one changes nothing.
if fenced() then return FENCED end
local damage = damaged(ARGV[5] == '1')
if damage then return damage end

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

-- Of fields and slabs what is left when later operations have overwritten earlier ones; false stands for "deleted".
-- Entries are nearly all of the bytes: of them only where they are, and they are taken apart as they are written.
local fields, slabs, spans = {}, {}, {}

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
  local at, first = 1, 1
  local function span()
    if at > first then spans[#spans + 1] = { first, at - 1 } end
  end
  while at <= LENGTH do
    local letter = byte(BLOB, at)
    if letter == SET then
      local high, low = byte(BLOB, at + 17, at + 18)
      if not low then error(ENDED) end
      at = at + 19 + high * 256 + low
    elseif letter == DELETE then
      at = at + 17
    else
      span()
      local operation = operations[letter]
      if not operation then error({ err = 'MALFORMED unknown operation at byte ' .. (at - 1) }) end
      at = operation(at + 1)
      first = at
    end
  end
  if at ~= LENGTH + 1 then error(ENDED) end
  span()
end

local set, sets, dead, deads, gone = {}, 0, {}, 0, {}

local function flush()
  if sets > 0 then redis.call('HSET', ENTRIES, unpack(set, 1, sets)) end
  if deads > 0 then redis.call('HDEL', ENTRIES, unpack(dead, 1, deads)) end
  sets, deads, gone = 0, 0, {}
end

local function write_entries(at, last)
  while at <= last do
    local id = sub(BLOB, at + 1, at + 16)
    if byte(BLOB, at) == SET then
      if gone[id] then flush() end
      local high, low = byte(BLOB, at + 17, at + 18)
      local value = at + 19
      at = value + high * 256 + low
      set[sets + 1], set[sets + 2] = id, sub(BLOB, value, at - 1)
      sets = sets + 2
      if sets == MANY then flush() end
    else
      gone[id] = true
      deads = deads + 1
      dead[deads] = id
      if deads == MANY then flush() end
      at = at + 17
    end
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
redis.call('HLEN', ENTRIES) -- fails on a key of another type, as commands before us in a transaction have

local fine, problem = pcall(read)
if not fine then return redis.error_reply(type(problem) == 'table' and problem.err or tostring(problem)) end
for slot in pairs(slabs) do
  if is_elsewhere(slot) then return elsewhere(slot) end
end

-- Until all is written nobody can say how large the state is. A command that a full server refuses comes first: after
-- the first write it would refuse none.
redis.call('HSET', META, 'sizes', '')
for _, span in ipairs(spans) do
  write_entries(span[1], span[2])
end
flush()
write(FIELDS, fields)
for slot, change in pairs(slabs) do
  write_slab(slot, change)
end
redis.call('HSET', META, 'identity', ARGV[2], 'sizes', sizes(ARGV[2]))
return 'done'
