-- Reads log entries.
-- KEYS log, meta   ARGV after, limit
-- Reply {first number kept, inc, ver, at, {entry, ...}}, entries as XRANGE gives them
local m = redis.call('HMGET', KEYS[2], 'low', 'inc', 'ver', 'at')
for i = 1, 4 do m[i] = tonumber(m[i] or 0) end
m[5] = {}
if tonumber(ARGV[1]) + 1 >= m[1] then
  m[5] = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1] .. '-0', '+', 'COUNT', ARGV[2])
end
return m
