-- Adds events to those of a task (key 2), unless a later lease exists: then 0. Key 1 is the task.
-- Arguments: epoch, number of the first event, time to live in ms, most events, channel, events.
-- An event that is there already is left out: the caller tries again when it got no answer.
local epoch = tonumber(ARGV[1])
local latest = tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0')
if latest > epoch then
  return 0
end
local last = 0
if latest == epoch then
  last = tonumber(redis.call('HGET', KEYS[1], 'last') or '0')
end
local number = tonumber(ARGV[2])
for at = 6, #ARGV do
  if number > last then
    redis.call('XADD', KEYS[2], 'MAXLEN', '=', ARGV[4], string.format('%.0f-%.0f', epoch, number), 'd', ARGV[at])
  end
  number = number + 1
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'at', ARGV[1], 'last', string.format('%.0f', math.max(last, number - 1)))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
redis.call('PUBLISH', ARGV[5], 'events')
return 1
