-- Returns the events of a task (key 2) after a position, and the state of the task (key 1) and of its lease (key 3).
-- Arguments: position, most events.
local events = {}
for _, event in ipairs(redis.call('XRANGE', KEYS[2], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])) do
  events[#events + 1] = event[1]
  events[#events + 1] = event[2][2]
end
local state = redis.call('HMGET', KEYS[1], 'at', 'last', 'version')
return {
  events, tonumber(state[1] or '0'), tonumber(state[2] or '0'), tonumber(state[3] or '0'), redis.call('PTTL', KEYS[3]),
}
