"""The Lua scripts by which Redis changes or shows one session in one step."""

from hashlib import sha1
from typing import Final, NamedTuple


class Script(NamedTuple):
    """A script, and the digest by which a server knows it.

    Attributes:
        text: The Lua code.
        digest: What EVALSHA is given.
    """

    text: str
    digest: str


def _script(text: str) -> Script:
    whole = _SHARED + text
    return Script(whole, sha1(whole.encode(), usedforsecurity=False).hexdigest())


# KEYS are always head, body, tombstone. Numbers are compared byte by byte:
# Lua's `<` on strings follows the locale of the server, and its numbers are
# exact to 2^53 only. Offsets: redis_value.py.
_SHARED: Final = """\
local function order(a, b)
  for i = 1, #a do
    local x, y = a:byte(i), b:byte(i)
    if x ~= y then return x < y and -1 or 1 end
  end
  return 0
end
local function known(value)
  return value and #value >= 53 and value:byte(1) == 1
end
local function term(value) return value:sub(2, 13) end
local function stand(value) return value:sub(14, 29) end
local function life(value) return value:sub(14, 21) end
local function write_id(value) return value:sub(30, 37) end
local NO_VERSION = string.rep('\\0', 8)
"""

WRITE: Final = _script("""\
-- ARGV: value, stand before, whole (0 or 1), frames kept, ttl in ms,
-- life from which on the session goes on after an erase (or ''), ttl of a
-- tombstone in ms, frames
local new, before, whole = ARGV[1], ARGV[2], ARGV[3] == '1'
local erased = ARGV[6] ~= ''
local floor = redis.call('GET', KEYS[3])
if floor and order(life(new), floor) < 0 then return 'ERASED' end
local old = redis.call('GET', KEYS[1])
local goes_on = false
if known(old) then
  -- The very same write, sent again because its answer did not arrive.
  if write_id(old) == write_id(new) then return 'WRITTEN' end
  local era = order(term(new), term(old))
  if era < 0 then return 'FENCED' end
  local gap = order(before, stand(old))
  -- What a later owner finds of an earlier one fences nobody.
  if era == 0 and gap < 0 then return 'FENCED' end
  -- Nor is it gone on with: at the same version it may have told otherwise.
  goes_on = era == 0 and gap == 0
end
if not (goes_on or whole or before:sub(9, 16) == NO_VERSION) then
  return 'NEED_HEAD'
end
local bodied = goes_on and not erased and redis.call('EXISTS', KEYS[2]) == 1
if #ARGV == 7 and not bodied and new:sub(22, 29) ~= NO_VERSION then
  -- A head without body would be the only trace of the session.
  redis.call('DEL', KEYS[1], KEYS[2])
  return 'NOT_HELD'
end
if erased then
  -- First what needs no memory: a full Redis then takes the rest as well.
  redis.call('DEL', KEYS[2])
  redis.call('SET', KEYS[3], ARGV[6], 'PX', ARGV[7])
end
-- A full Redis refuses here, before anything of an ordinary write was done.
redis.call('SET', KEYS[1], new, 'PX', ARGV[5])
if not bodied then redis.call('DEL', KEYS[2]) end
for i = 8, #ARGV do redis.call('RPUSH', KEYS[2], ARGV[i]) end
redis.call('LTRIM', KEYS[2], -tonumber(ARGV[4]), -1)
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return 'WRITTEN'
""")
"""Write head and frames, or say why not; see `Outcome` of redis.py."""

READ: Final = _script("""\
return {redis.call('GET', KEYS[1]), redis.call('LRANGE', KEYS[2], 0, -1)}
""")
"""Show head and frames as of one moment."""

DROP: Final = _script("""\
-- ARGV: the id of the write that put it there, '' for any
local old = redis.call('GET', KEYS[1])
if ARGV[1] ~= '' and not (known(old) and write_id(old) == ARGV[1]) then
  return 0
end
return redis.call('DEL', KEYS[1], KEYS[2])
""")
"""Forget head and frames; a tombstone stays."""

ERASE: Final = _script("""\
-- ARGV: life from which on the session goes on, ttl of the tombstone in ms
local floor = redis.call('GET', KEYS[3])
if not floor or order(floor, ARGV[1]) < 0 then floor = ARGV[1] end
local old = redis.call('GET', KEYS[1])
local gone = 0
if not (known(old) and order(life(old), floor) >= 0) then
  gone = redis.call('DEL', KEYS[1], KEYS[2])
end
redis.call('SET', KEYS[3], floor, 'PX', ARGV[2])
return gone
""")
"""End every life below one, and let none of them be written again."""

INSPECT: Final = _script("""\
-- ARGV: part looked at (h, f or t), now in ms (8 bytes), mend (0 or 1),
-- ttl of a tombstone in ms
local part, now, mend = ARGV[1], ARGV[2], ARGV[3] == '1'
local at = ({h = KEYS[1], f = KEYS[2], t = KEYS[3]})[part]
local ttl = redis.call('PTTL', at)
if ttl == -2 then return 0 end
local faults = 1
if ttl == -1 then faults = faults + 2 end
if part == 't' then
  if ttl == -1 and mend then redis.call('PEXPIRE', at, ARGV[4]) end
  return faults
end
local old = redis.pcall('GET', KEYS[1])
if type(old) == 'table' then old = 'another type' end
if part == 'h' then
  if not known(old) then
    faults = faults + 4
  else
    if old:sub(22, 29) ~= NO_VERSION and redis.call('EXISTS', KEYS[2]) == 0 then
      faults = faults + 8
    end
    if order(old:sub(46, 53), now) <= 0 then faults = faults + 32 end
  end
elseif not old then
  faults = faults + 16
end
if faults > 1 and mend then redis.call('DEL', KEYS[1], KEYS[2]) end
return faults
""")
"""Look at one key: 1 = it is there, and the sum of what is wrong with it.

2 no TTL, 4 no value of ours, 8 a head without body, 16 a body without head,
32 past the time until which it may be served.
"""
