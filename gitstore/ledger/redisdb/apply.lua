-- Applies one batch to one space: everything is computed and checked first, then
-- written without a step that can fail half way.
--
-- KEYS  values (hash), order (zset), log (stream), meta (hash), dropped, answer,
--       before (hash), beforeorder (zset): see hold.lua
-- ARGV  1 channel   2 answer is kept this long (ms)
--       3 '1': the caller named the batch   '0': not   'S': it begins a new incarnation, see below
--       4-8 what the node knows: incarnation, version, at, seq, at of that log entry
--       9 '1': there is a log entry   10 its bytes
--       11, 12 place and name of the node's own batch that made that version; '' if none did
--       13, 14 place and name of this batch: the field of meta for its answer, and a
--       number that grows with each batch of the node's process; '' with 'S'
--       15-18 numbers of checks, sets, adds, deletes; then their fields:
--       check: kind, key, operand   set: key, value   add: key, delta   delete: key
--       with 'S' behind them: the incarnation and the resyncs that were found, the resyncs the node knows of
-- Reply {'A', seq, at, inc, ver, syncs}   applied; with only checks and no name the clock of ver
--                                    stands behind them, for that is another batch's
--       {'R', seq, at}               this batch id was applied before; nothing done
--       {'C', index, key, present}   check index does not hold; nothing done
--       {'N', key, reason}           the counter cannot be computed; nothing done
--       {'L', inc, ver, seq, syncs}  the space is behind what the node knows, or with 'S' is not
--                                    what was found; nothing done
--       {'O', at, inc, ver, syncs}   with 'S': the space is not behind; nothing done
--
-- The answer of every batch stands in a place that the node gives to another one when it
-- has the answer. It is for the client that sends a batch again, and it shows whether
-- what the node was told is still there: the place of the newest batch that the node has
-- an answer of holds it, or a later one, which then knew of it. The answer of a batch
-- with a name of the caller's is besides a key of its own for as long as it is kept.
--
-- A batch with 'S' is applied only while the space is behind what the node knows. With
-- it the space begins a new incarnation, whose log numbers begin far above every
-- number that was told before: meta has their first, and in past all incarnations
-- that this one follows. A node that knows one of them, and no number from first
-- on, goes on in the new one.
local VALUES, ORDER, LOG, META, DROPPED, ANSWER, BEFORE, BEFOREORDER = unpack(KEYS)
local CHUNK = 4000 -- unpack must stay below Lua's 8,000 stack slots
local JUMP = 1048576 -- of log numbers at a resync: more than can have been told and lost
local FIELDS = 300 -- of meta; above it places of processes that are gone are looked for
local KEPT = 600000000 -- microseconds after which a place that was not used is taken for one
local resync, named = ARGV[3] == 'S', ARGV[3] == '1'
local place, name = ARGV[13], ARGV[14]

local m = redis.call('HMGET', META, 'inc', 'ver', 'at', 'seq', 'until', 'syncs', place, ARGV[11])
local inc, ver = tonumber(m[1] or 0), tonumber(m[2] or 0)
local at, seq = tonumber(m[3] or 0), tonumber(m[4] or 0)
local syncs = tonumber(m[6] or 0)
-- A drop is older than the incarnation that is there, so it matters only to who knows
-- another one, or asks for an answer that a drop has not taken away.
local dropped = 0
if named or inc == 0 or inc ~= tonumber(ARGV[4]) then dropped = tonumber(redis.call('GET', DROPPED) or 0) end

local function follows()
  local p = redis.call('HMGET', META, 'past', 'first')
  return p[1] and string.find(p[1], ' ' .. ARGV[4] .. ' ', 1, true) and tonumber(ARGV[7]) < tonumber(p[2])
end

-- An incarnation that ended with a Drop is no loss. One whose version went back,
-- or whose history is another one, is.
local function behind()
  local kinc, kver, kat = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
  if kinc <= dropped then return false end
  if inc ~= kinc then return not follows() end
  if ver < kver or seq < tonumber(ARGV[7]) then return true end
  if ver == kver then return at ~= kat end
  if m[8] then return tonumber(string.match(m[8], '^%d+')) < tonumber(ARGV[12]) end
  if ARGV[7] == '0' then return false end
  local id = ARGV[7] .. '-0'
  local entry = redis.call('XRANGE', LOG, id, id)[1]
  return entry ~= nil and entry[2][2] ~= ARGV[8]
end
local lost = behind()
if resync then
  if not lost then return {'O', at, inc, ver, syncs} end
  lost = inc ~= tonumber(ARGV[#ARGV - 2]) or syncs ~= tonumber(ARGV[#ARGV - 1])
end
if lost then return {'L', inc, ver, seq, syncs} end

local answer = named and redis.call('GET', ANSWER)
if not answer and m[7] and string.match(m[7], '^%d+') == name then answer = string.sub(m[7], #name + 2) end
if answer then
  local s, t = string.match(answer, '^(%d+):(%d+)$')
  if tonumber(t) > dropped then return {'R', tonumber(s), tonumber(t)} end
end

local t = redis.call('TIME')
local now = math.max(t[1] * 1000000 + t[2], at + 1, dropped + 1)
if resync then now = math.max(now, ARGV[4] + 1, ARGV[6] + 1, ARGV[8] + 1) end

local nchecks, nsets = tonumber(ARGV[15]), tonumber(ARGV[16])
local nadds, ndeletes = tonumber(ARGV[17]), tonumber(ARGV[18])
local checks = 19
local sets = checks + 3 * nchecks
local adds = sets + 2 * nsets
local deletes = adds + 2 * nadds
local last = deletes + ndeletes - 1

-- Numbers here are doubles, exact to 2^53 only. Counters are 64 bit, so they are
-- added as pairs: value = hi * 10^9 + lo, 0 <= lo < 10^9.
local BASE = 1000000000
local function inrange(hi, lo)
  if hi > 9223372036 or (hi == 9223372036 and lo > 854775807) then return false end
  return hi > -9223372037 or (hi == -9223372037 and lo >= 145224192)
end
local function parse(s)
  local sign, digits = string.match(s, '^([+-]?)0*(%d+)$')
  if not sign or #digits > 19 then return nil end
  local hi, lo = tonumber(string.sub(digits, 1, -10)) or 0, tonumber(string.sub(digits, -9))
  if sign == '-' then
    hi, lo = 0 - hi, 0 - lo
    if lo < 0 then hi, lo = hi - 1, lo + BASE end
  end
  if inrange(hi, lo) then return {hi, lo} end
end
local function plus(a, b)
  local hi, lo = a[1] + b[1], a[2] + b[2]
  if lo >= BASE then hi, lo = hi + 1, lo - BASE end
  if inrange(hi, lo) then return {hi, lo} end
end
local function atmost(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] <= b[2]) end
local function text(a)
  local hi, lo, sign = a[1], a[2], ''
  if hi < 0 then
    sign = '-'
    if lo > 0 then hi, lo = -hi - 1, BASE - lo else hi = -hi end
  end
  if hi == 0 then return sign .. string.format('%d', lo) end
  return sign .. string.format('%d%09d', hi, lo)
end

-- What stands under the keys that checks and adds look at; false is absent.
local present = {}
do
  local want, n = {}, 0
  for i = checks, sets - 1, 3 do
    local kind = ARGV[i]
    if kind == 'E' or kind == 'A' or kind == 'M' then n = n + 1; want[n] = ARGV[i + 1] end
  end
  for i = adds, deletes - 1, 2 do n = n + 1; want[n] = ARGV[i] end
  for from = 1, n, CHUNK do
    local to = math.min(from + CHUNK - 1, n)
    local got = redis.call('HMGET', VALUES, unpack(want, from, to))
    for j = from, to do present[want[j]] = got[j - from + 1] end
  end
end

local sum, bad, badkey, badwhy = {}, {}, nil, nil
for i = adds, deletes - 1, 2 do
  local key = ARGV[i]
  local old = parse(present[key] or '0')
  local new = old and plus(old, parse(ARGV[i + 1]))
  if new then
    sum[key] = new
  else
    bad[key] = true
    badkey = badkey or key
    badwhy = badwhy or (old and 'overflow' or 'not an integer')
  end
end

-- What a counter that is not added to will hold after the batch.
local final = nil
local function after(key)
  if not final then
    final = {}
    for i = sets, adds - 1, 2 do final[ARGV[i]] = ARGV[i + 1] end
    for i = deletes, last do final[ARGV[i]] = '0' end
  end
  return parse(final[key] or present[key] or '0')
end

local function successor(prefix)
  for i = #prefix, 1, -1 do
    local b = string.byte(prefix, i)
    if b < 255 then return '(' .. string.sub(prefix, 1, i - 1) .. string.char(b + 1) end
  end
  return '+'
end

for i = 1, nchecks do
  local p = checks + 3 * (i - 1)
  local kind, key, operand = ARGV[p], ARGV[p + 1], ARGV[p + 2]
  if kind == 'E' then
    if present[key] ~= operand then return {'C', i, key, present[key]} end
  elseif kind == 'A' then
    if present[key] then return {'C', i, key, present[key]} end
  elseif kind == 'P' then
    local found = redis.call('ZRANGEBYLEX', ORDER, '[' .. key, successor(key), 'LIMIT', 0, 1)[1]
    if found then return {'C', i, found, redis.call('HGET', VALUES, found)} end
  elseif kind == 'M' then
    if bad[key] then return {'N', key, badwhy} end
    local value = sum[key] or after(key)
    if not value then return {'N', key, 'not an integer'} end
    if not atmost(value, parse(operand)) then return {'C', i, key, text(value)} end
  elseif kind == 'B' then
    if now >= tonumber(operand) then return {'C', i, '', string.format('%.0f', now)} end
  end
end
if badkey then return {'N', badkey, badwhy} end

local haslog = ARGV[9] == '1'
if last < sets and not haslog and ARGV[3] == '0' then
  return {'A', seq, now, inc, ver, syncs, at} -- only checks, and nobody will ask again
end

local function order(keys)
  for from = 1, #keys, CHUNK / 2 do
    local args, n = {}, 0
    for j = from, math.min(from + CHUNK / 2 - 1, #keys) do
      args[n + 1], args[n + 2] = 0, keys[j]
      n = n + 2
    end
    redis.call('ZADD', ORDER, unpack(args, 1, n))
  end
end
local function set()
  local new = {}
  for from = sets, adds - 1, CHUNK do
    local to = math.min(from + CHUNK - 1, adds - 1)
    if redis.call('HSET', VALUES, unpack(ARGV, from, to)) > 0 then
      for j = from, to, 2 do new[#new + 1] = ARGV[j] end
    end
  end
  for i = adds, deletes - 1, 2 do
    local key = ARGV[i]
    if redis.call('HSET', VALUES, key, text(sum[key])) > 0 then new[#new + 1] = key end
  end
  order(new)
end
local function delete()
  for from = deletes, last, CHUNK do
    local to = math.min(from + CHUNK - 1, last)
    if redis.call('HDEL', VALUES, unpack(ARGV, from, to)) > 0 then
      redis.call('ZREM', ORDER, unpack(ARGV, from, to))
    end
  end
end

-- A dump that holds the space sees what stood under a key before its first change.
local held = m[5] and tonumber(m[5]) > t[1] * 1000000 + t[2]
local function keep(keys)
  for from = 1, #keys, CHUNK / 2 do
    local to = math.min(from + CHUNK / 2 - 1, #keys)
    local had = redis.call('HMGET', BEFORE, unpack(keys, from, to))
    local old = redis.call('HMGET', VALUES, unpack(keys, from, to))
    local new, names, n = {}, {}, 0
    for j = from, to do
      local i = j - from + 1
      if not had[i] then
        new[n + 1], new[n + 2] = keys[j], old[i] and ('+' .. old[i]) or '-'
        names[n + 1], names[n + 2] = 0, keys[j]
        n = n + 2
      end
    end
    if n > 0 then
      redis.call('HSET', BEFORE, unpack(new, 1, n))
      redis.call('ZADD', BEFOREORDER, unpack(names, 1, n))
    end
  end
end
local function letgo()
  redis.call('HDEL', META, 'hold', 'until')
  redis.call('UNLINK', BEFORE, BEFOREORDER)
end
local function keepall()
  local keys = {}
  for i = sets, deletes - 1, 2 do keys[#keys + 1] = ARGV[i] end
  for i = deletes, last do keys[#keys + 1] = ARGV[i] end
  if nsets + nadds > 0 then return keep(keys) end
  -- What only deletes goes through when memory is full: the dump is then given up.
  if not pcall(keep, keys) then letgo() end
end
if held then keepall() end
if resync then seq = math.max(seq, ARGV[7]) + JUMP end

-- A server with full memory refuses a script's first write if it could grow, and
-- none after it. So a batch that sets is refused whole, and one that only
-- deletes goes through and makes room.
if nsets + nadds > 0 then
  set()
  delete()
else
  delete()
end
local at = string.format('%d', now)
if haslog then
  seq = seq + 1
  redis.call('XADD', LOG, string.format('%d-0', seq), 'a', at, 'd', ARGV[10])
end
local number = string.format('%d', seq)
if m[5] and not held then letgo() end
ver = ver + 1
if resync then
  local past = redis.call('HGET', META, 'past') or ' '
  for _, i in ipairs({string.format('%d', inc), ARGV[4]}) do
    if not string.find(past, ' ' .. i .. ' ', 1, true) then past = past .. i .. ' ' end
  end
  local first = haslog and seq or seq + 1
  inc, ver, syncs = now, math.max(ver, ARGV[5] + 1), math.max(syncs, ARGV[#ARGV]) + 1
  redis.call('HSET', META, 'inc', at, 'past', past, 'first', string.format('%d', first), 'syncs', syncs)
elseif inc == 0 then
  inc = now
  redis.call('HSET', META, 'inc', at)
end
local answered = number .. ':' .. at
if resync then
  redis.call('HSET', META, 'ver', string.format('%d', ver), 'at', at, 'seq', number)
else
  local new = redis.call('HSET', META, 'ver', string.format('%d', ver), 'at', at, 'seq', number, place, name .. ':' .. answered)
  if new > 0 and redis.call('HLEN', META) > FIELDS then
    local all = redis.call('HGETALL', META)
    for i = 1, #all, 2 do
      local told = string.match(all[i + 1], '^%d+:%d+:(%d+)$')
      if told and now - told > KEPT then redis.call('HDEL', META, all[i]) end
    end
  end
end
if named then redis.call('SET', ANSWER, answered, 'PX', ARGV[2]) end
if haslog then redis.pcall('PUBLISH', ARGV[1], number) end
return {'A', seq, now, inc, ver, syncs}
