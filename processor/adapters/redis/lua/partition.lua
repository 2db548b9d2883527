-- Put before every other script. KEYS: the partition's meta, entries, fields and slots. ARGV[1]: the caller's token.
--
-- One key would be enough to find the node. All four are declared because, while a cluster moves a hash slot from
-- node to node, it then answers TRYAGAIN instead of running a script that would see half of a state. Slabs cannot be
-- declared (a blob names them); `slots` lists them, so that one that is still elsewhere is noticed.
local META, ENTRIES, FIELDS, SLOTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ID_BYTES = 16
local MANY = 1000 -- values for one call: more would leave the cache, and from about 8000 on Lua's stack refuses

local FENCED = redis.error_reply('FENCED claimed by another process')

local function fenced()
  return redis.call('HGET', META, 'token') ~= ARGV[1]
end

-- How large the last apply left the state, and after which batch. A state that an earlier version has written since
-- says nothing of it: its batch is another one.
local IDENTITY = '^1:([^:]+):(%d+):'
local SIZES = '^1:(%d+):(%d+):(%d+):(%d+)$'

local function size(count, key)
  return string.format('%.0f', redis.call(count, key))
end

local function sizes(identity)
  local _, sequence = string.match(identity, IDENTITY)
  return table.concat({ '1', sequence, size('HLEN', ENTRIES), size('HLEN', FIELDS), size('ZCARD', SLOTS) }, ':')
end

-- Whether something of the state is gone: somebody deleted it, or a memory policy did.
local function damaged(entries_change)
  local meta = redis.call('HMGET', META, 'identity', 'sizes')
  if not (meta[1] and meta[2]) then return nil end
  local _, sequence = string.match(meta[1], IDENTITY)
  local left, entries, fields, slots = string.match(meta[2], SIZES)
  if left ~= sequence then return nil end
  if (entries_change or size('HLEN', ENTRIES) == entries)
    and size('HLEN', FIELDS) == fields and size('ZCARD', SLOTS) == slots then return nil end
  return redis.error_reply('DAMAGED left as ' .. meta[2] .. ' and found as ' .. sizes(meta[1]))
end

local function slab(slot)
  return string.sub(META, 1, -5) .. 'slab:' .. slot
end

-- Lua would write a large number with an exponent.
local function decimal(number)
  return string.format('%.0f', number)
end

local function is_elsewhere(slot)
  return redis.call('EXISTS', slab(slot)) == 0 and redis.call('ZSCORE', SLOTS, slot)
end

local function elsewhere(slot)
  return redis.error_reply('TRYAGAIN the slab of slot ' .. slot .. ' is on another node')
end
