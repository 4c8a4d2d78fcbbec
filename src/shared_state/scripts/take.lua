-- Takes one of a rate (key 1): 0, or the wait in ms. The generic cell rate algorithm, by the clock of the engine.
-- Arguments: microseconds for one, burst.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local interval = tonumber(ARGV[1])
local due = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now) + interval
local excess = due - now - interval * tonumber(ARGV[2])
if excess > 0 then
  return math.max(1, math.ceil(excess / 1000))
end
redis.call('SET', KEYS[1], string.format('%.0f', due), 'PX', math.ceil((due - now) / 1000) + 1)
return 0
