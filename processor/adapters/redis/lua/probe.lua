-- Uses what the other scripts use.
local number = struct.unpack('>I4', ARGV[2])
return struct.pack('>I4', number)
