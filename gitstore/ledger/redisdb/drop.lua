-- Forgets a space. What stays for ARGV[1] seconds is the time of the drop: it tells
-- a node that knew the space that it ended rightly, and a batch that is sent again
-- that its old answer is of no use.
-- KEYS values, order, log, meta, dropped, before, beforeorder
local at = tonumber(redis.call('HGET', KEYS[4], 'at') or 0)
if at == 0 then return 0 end
local t = redis.call('TIME')
local before = tonumber(redis.call('GET', KEYS[5]) or 0)
local now = math.max(t[1] * 1000000 + t[2], at, before)
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6], KEYS[7])
redis.call('SET', KEYS[5], string.format('%.0f', now), 'EX', ARGV[1])
return 1
