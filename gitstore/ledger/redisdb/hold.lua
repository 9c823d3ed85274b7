-- Holds a space for a dump: until the hold is let go or has run out, apply.lua keeps
-- what stood under each key before its first change since.
-- KEYS  meta (hash), before (hash), beforeorder (zset)
-- ARGV  1 id of the hold   2 how long it lasts without being asked for (ms)
-- Reply {}                        no such space
--       {'B'}                     another dump holds it
--       {'H', at, seq, low}       what the space was when this id first held it; low is the
--                                 first number behind which the log has no gap
local m = redis.call('HMGET', KEYS[1], 'inc', 'at', 'seq', 'low', 'hold', 'until', 'first')
if not m[1] then return {} end
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local live = m[6] and tonumber(m[6]) > now
if live and string.sub(m[5], 1, #ARGV[1] + 1) ~= ARGV[1] .. ' ' then return {'B'} end
if not live then
  redis.call('UNLINK', KEYS[2], KEYS[3])
  local low = string.format('%.0f', math.max(m[4] or 0, m[7] or 0)) -- a resync leaves a gap
  m[5] = string.format('%s %s %s %s', ARGV[1], m[2], m[3], low)
  redis.call('HSET', KEYS[1], 'hold', m[5])
end
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now + ARGV[2] * 1000))
local at, seq, low = string.match(m[5], '^%S+ (%d+) (%d+) (%d+)$')
return {'H', tonumber(at), tonumber(seq), tonumber(low)}
