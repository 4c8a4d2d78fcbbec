-- Sets the row of a task (key 1), unless the present one has a later position: that one is returned.
-- Arguments: epoch and number of the position, row, time to live in ms, channel.
local present = redis.call('HMGET', KEYS[1], 'row_epoch', 'row_number', 'row')
if present[3] then
  local epoch, number = tonumber(present[1]), tonumber(present[2])
  if epoch > tonumber(ARGV[1]) or (epoch == tonumber(ARGV[1]) and number > tonumber(ARGV[2])) then
    return present
  end
end
redis.call('HSET', KEYS[1], 'row_epoch', ARGV[1], 'row_number', ARGV[2], 'row', ARGV[3])
redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PUBLISH', ARGV[5], 'row')
return {}
