-- Reads a part of a held space and prolongs the hold.
-- KEYS  values (hash), order (zset), log (stream), meta (hash), before (hash), beforeorder (zset)
-- ARGV  1 id of the hold   2 how long it lasts (ms)   3 most bytes   4 most items or entries
--       5 'K', 'L', or 'P' for the hold alone   6 where to begin: a key, or the number of a log entry   7 last log entry
-- Reply {}                                the hold is lost
--       {'K', full, {key, value, ...}, full, {key, before, ...}}   keys as they stand, and as
--                                         they stood before they were changed; full is 1 if there may be more
--       {'L', {entry, ...}}               entries as XRANGE gives them
--       {'P'}                             prolonged
local VALUES, ORDER, LOG, META, BEFORE, BEFOREORDER = unpack(KEYS)
local most = tonumber(ARGV[3])
local m = redis.call('HMGET', META, 'hold', 'until', 'low')
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
if not m[1] or string.sub(m[1], 1, #ARGV[1] + 1) ~= ARGV[1] .. ' ' or tonumber(m[2]) <= now then return {} end
redis.call('HSET', META, 'until', string.format('%.0f', now + ARGV[2] * 1000))

if ARGV[5] == 'P' then return {'P'} end

local function part(hash, order)
  local keys = redis.call('ZRANGEBYLEX', order, '[' .. ARGV[6], '+', 'LIMIT', 0, ARGV[4])
  local full, out, size = 0, {}, 0
  if #keys == tonumber(ARGV[4]) then full = 1 end
  for i = 1, #keys do
    local value = redis.call('HGET', hash, keys[i])
    out[2 * i - 1], out[2 * i] = keys[i], value
    size = size + #keys[i] + #value
    if size >= most and i < #keys then full = 1 break end
  end
  return full, out
end

if ARGV[5] == 'K' then
  local full, keys = part(VALUES, ORDER)
  local bfull, before = part(BEFORE, BEFOREORDER)
  return {'K', full, keys, bfull, before}
end

if tonumber(m[3] or 0) > tonumber(ARGV[6]) + 1 then return {} end
local out, size, from = {}, 0, ARGV[6]
while #out < tonumber(ARGV[4]) and size < most do
  local got = redis.call('XRANGE', LOG, '(' .. from .. '-0', ARGV[7] .. '-0', 'COUNT', 16)
  for i = 1, #got do
    out[#out + 1] = got[i]
    size = size + #got[i][2][4]
    from = string.match(got[i][1], '^(%d+)')
  end
  if #got < 16 then break end
end
return {'L', out}
