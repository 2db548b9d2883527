-- ARGV[2]: '1' on a cluster, where a slab that is listed and not here may be on another node.
-- The identity goes first: what a failed call leaves behind must not look like a state.
if fenced() then return FENCED end
redis.call('HDEL', META, 'identity', 'sizes')
for _, slot in ipairs(redis.call('ZRANGE', SLOTS, 0, -1)) do
  if ARGV[2] == '1' and is_elsewhere(slot) then return elsewhere(slot) end
  redis.call('UNLINK', slab(slot))
end
redis.call('UNLINK', ENTRIES, FIELDS, SLOTS)
return 'done'
