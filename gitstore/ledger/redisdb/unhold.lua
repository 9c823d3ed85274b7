-- Lets a hold go.   KEYS meta, before, beforeorder   ARGV id of the hold
local hold = redis.call('HGET', KEYS[1], 'hold')
if hold and string.sub(hold, 1, #ARGV[1] + 1) == ARGV[1] .. ' ' then
  redis.call('HDEL', KEYS[1], 'hold', 'until')
  redis.call('UNLINK', KEYS[2], KEYS[3])
end
return 1
