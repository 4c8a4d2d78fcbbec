-- Ends the lease of a task (key 1), if this holder has it. Arguments: holder, epoch, channel.
if redis.call('GET', KEYS[1]) == ARGV[1] .. ' ' .. ARGV[2] then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[3], 'lease')
end
return 1
