-- Drops the log entries numbered below ARGV[1]; numbers go on.
-- KEYS log, meta
local m = redis.call('HMGET', KEYS[2], 'low', 'seq')
local low = math.min(tonumber(ARGV[1]), tonumber(m[2] or 0) + 1)
if low <= math.max(tonumber(m[1] or 0), 1) then return 0 end
-- XTRIM first: it is allowed when memory is full, and then so is what follows.
redis.call('XTRIM', KEYS[1], 'MINID', '=', string.format('%.0f-0', low))
redis.call('HSET', KEYS[2], 'low', string.format('%.0f', low))
return 1
