-- Gives the lease of a task (key 2) to a holder, unless another one has it. Key 1 is the task.
-- Arguments: holder, lifetime in ms, 1 to take over, smallest epoch, time to live of the task in ms, channel.
local held = redis.call('GET', KEYS[2])
local is_own = held and string.sub(held, 1, #ARGV[1] + 1) == ARGV[1] .. ' '
if held and not is_own and ARGV[3] == '0' then
  return { 0, redis.call('PTTL', KEYS[2]) }
end
local epoch = math.max(tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0'), tonumber(ARGV[4])) + 1
redis.call('HSET', KEYS[1], 'epoch', string.format('%.0f', epoch))
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('SET', KEYS[2], ARGV[1] .. ' ' .. string.format('%.0f', epoch), 'PX', ARGV[2])
if held and not is_own then
  redis.call('PUBLISH', ARGV[6], 'lease')
end
return { epoch, tonumber(redis.call('HGET', KEYS[1], 'last') or '0') }
