-- Renews the lease of a task (key 2) and returns 1, or 0 if it is lost. Key 1 is the task.
-- Arguments: holder, epoch, lifetime in ms, time to live of the task in ms.
local own = ARGV[1] .. ' ' .. ARGV[2]
local held = redis.call('GET', KEYS[2])
local latest = tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0')
-- An engine that has lost its data gets the lease back, if there is no later one.
if held ~= own and (held or latest > tonumber(ARGV[2])) then
  return 0
end
redis.call('SET', KEYS[2], own, 'PX', ARGV[3])
redis.call('HSET', KEYS[1], 'epoch', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
