-- Sets the units of a quota (key 1) that a replica holds: as many as it wants, of those that the others leave of the limit, and
-- no fewer than it needs. Returns them, and those of the others. Units that are not renewed in time count no more.
-- Arguments: replica, units needed, units wanted, limit, lifetime in ms.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local all, others = redis.call('HGETALL', KEYS[1]), 0
for at = 1, #all, 2 do
  local units, expires = string.match(all[at + 1], '^(%d+) (%d+)$')
  if tonumber(expires) <= now then
    redis.call('HDEL', KEYS[1], all[at])
  elseif all[at] ~= ARGV[1] then
    others = others + tonumber(units)
  end
end
local units = math.max(tonumber(ARGV[2]), math.min(tonumber(ARGV[3]), tonumber(ARGV[4]) - others))
if units == 0 then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f %.0f', units, now + tonumber(ARGV[5])))
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
end
return { units, others }
