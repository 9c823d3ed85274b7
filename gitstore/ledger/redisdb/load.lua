-- Writes a chunk of a space that does not exist yet. A chunk that is sent again does no harm.
-- KEYS  values (hash), order (zset), log (stream), meta (hash), dropped
-- ARGV  1 number of items   2 number of log entries   3 '1': this is the last chunk
--       4 at   5 seq   6 low of the space; then the items (key, value), then the entries (seq, at, data)
-- Reply 'L' loaded   'E' the space exists
local VALUES, ORDER, LOG, META, DROPPED = unpack(KEYS)
local items, entries = tonumber(ARGV[1]), tonumber(ARGV[2])
local m = redis.call('HMGET', META, 'inc', 'at', 'seq', 'ver')
if m[1] then
  if ARGV[3] == '1' and m[2] == ARGV[4] and m[3] == ARGV[5] and m[4] == '1' then return 'L' end
  return 'E'
end
local p = 7
for i = 1, items do
  redis.call('HSET', VALUES, ARGV[p], ARGV[p + 1])
  redis.call('ZADD', ORDER, 0, ARGV[p])
  p = p + 2
end
local last = redis.call('XREVRANGE', LOG, '+', '-', 'COUNT', 1)[1]
last = last and tonumber(string.match(last[1], '^(%d+)')) or 0
for i = 1, entries do
  if tonumber(ARGV[p]) > last then
    redis.call('XADD', LOG, ARGV[p] .. '-0', 'a', ARGV[p + 1], 'd', ARGV[p + 2])
  end
  p = p + 3
end
if ARGV[3] == '1' then
  -- The space is a new one to every node that knew it elsewhere, or before.
  local t = redis.call('TIME')
  local inc = math.max(t[1] * 1000000 + t[2], tonumber(ARGV[4]) + 1, tonumber(redis.call('GET', DROPPED) or 0) + 1)
  redis.call('HSET', META, 'inc', string.format('%.0f', inc), 'ver', '1', 'at', ARGV[4], 'seq', ARGV[5])
  if ARGV[6] ~= '0' then redis.call('HSET', META, 'low', ARGV[6]) end
end
return 'L'
