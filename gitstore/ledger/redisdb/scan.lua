-- Lists keys in byte order with their values.
-- KEYS values, order   ARGV lower bound, upper bound (as ZRANGEBYLEX takes them), limit
-- Reply key, value, key, value, ...
local keys = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
local out, n = {}, 0
for from = 1, #keys, 4000 do
  local to = math.min(from + 3999, #keys)
  local got = redis.call('HMGET', KEYS[1], unpack(keys, from, to))
  for j = from, to do
    out[n + 1], out[n + 2] = keys[j], got[j - from + 1]
    n = n + 2
  end
end
return out
