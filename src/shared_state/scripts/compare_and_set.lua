-- Replaces the value of key 1 if it is as expected, and returns 1. Arguments: expected value, 1 to remove it, new value,
-- time to live in ms.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[2] == '1' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
end
return 1
