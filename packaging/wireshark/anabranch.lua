-- Wireshark dissector for the datagrams of Anabranch's striped UDP paths (docs/wire.md).
--
-- Copy it to the folder of personal Lua plugins (Help, About Wireshark, Folders), or:
--   tshark -X lua_script:anabranch.lua -r capture.pcap -d udp.port==4433,anabranch
--
-- It shows what can be read without keys. Handshakes, and the answers without state, are recognised
-- by themselves; data packets are from then on, in the same conversation.

local anabranch = Proto("anabranch", "Anabranch striped path")

local VERSION = 0x616e6201
local KINDS = { [1] = "versions", [2] = "retry", [3] = "reset" }
local FORMS = { [0] = "data", [1] = "handshake" }
local LEVELS = { [0] = "initial", [1] = "handshake" }
-- Header protection covers what is behind these bits.
local NUMBER_AND_TAG = 20

local f = anabranch.fields
f.form = ProtoField.uint8("anabranch.form", "Form", base.DEC, FORMS, 0x80)
f.fixed = ProtoField.bool("anabranch.fixed", "Fixed bit", 8, nil, 0x40)
f.plain = ProtoField.bool("anabranch.plain", "Without state", 8, nil, 0x20)
f.level = ProtoField.uint8("anabranch.level", "Level", base.DEC, LEVELS, 0x10)
f.kind = ProtoField.uint8("anabranch.kind", "Kind", base.DEC, KINDS, 0x03)
f.version = ProtoField.uint32("anabranch.version", "Version", base.HEX)
f.label = ProtoField.uint64("anabranch.label", "Label", base.HEX)
f.token_length = ProtoField.uint8("anabranch.token_length", "Length of the retry token")
f.token = ProtoField.bytes("anabranch.token", "Token")
f.spoken = ProtoField.uint32("anabranch.spoken", "Version spoken", base.HEX)
f.sealed = ProtoField.bytes("anabranch.sealed", "Packet number and sealed part, protected")

local malformed =
  ProtoExpert.new("anabranch.short", "Too short", expert.group.MALFORMED, expert.severity.WARN)
anabranch.experts = { malformed }

-- The first bits of octet 0.
local function has_bit(octet, value)
  return math.floor(octet / value) % 2 == 1
end

-- Adds the rest of the datagram, which only the keys of the connection open.
local function add_sealed(buffer, at, tree)
  if buffer:len() < at + NUMBER_AND_TAG then
    tree:add_proto_expert_info(malformed)
  end
  if buffer:len() > at then
    tree:add(f.sealed, buffer(at))
  end
end

local function dissect_data(buffer, pinfo, tree)
  tree:add(f.label, buffer(1, 8))
  pinfo.cols.info = string.format("Data, label %s, %d bytes", buffer(1, 8), buffer:len())
  add_sealed(buffer, 9, tree)
end

local function dissect_plain(buffer, pinfo, tree)
  local kind = buffer(0, 1):uint() % 4
  tree:add(f.kind, buffer(0, 1))
  tree:add(f.version, buffer(1, 4))
  tree:add(f.label, buffer(5, 8))
  pinfo.cols.info = string.format("Answer: %s, label %s", KINDS[kind] or "?", buffer(5, 8))
  if kind == 1 then
    for at = 13, buffer:len() - 4, 4 do
      tree:add(f.spoken, buffer(at, 4))
    end
  elseif buffer:len() > 13 then
    tree:add(f.token, buffer(13))
  end
end

local function dissect_handshake(buffer, pinfo, tree)
  local is_handshake_level = has_bit(buffer(0, 1):uint(), 0x10)
  tree:add(f.level, buffer(0, 1))
  tree:add(f.version, buffer(1, 4))
  tree:add(f.label, buffer(5, 8))
  local level = LEVELS[is_handshake_level and 1 or 0]
  local length = buffer:len()
  pinfo.cols.info = string.format("Handshake, %s, label %s, %d bytes", level, buffer(5, 8), length)
  local at = 13
  if not is_handshake_level and length > at then
    local token = buffer(at, 1):uint()
    tree:add(f.token_length, buffer(at, 1))
    at = at + 1
    if token > 0 and length >= at + token then
      tree:add(f.token, buffer(at, token))
    end
    at = at + token
  end
  add_sealed(buffer, at, tree)
end

function anabranch.dissector(buffer, pinfo, root)
  if buffer:len() < 9 then
    return 0
  end
  local first = buffer(0, 1):uint()
  if not has_bit(first, 0x40) then
    -- A receiver ignores it.
    return 0
  end
  local is_handshake_form = has_bit(first, 0x80)
  if is_handshake_form and buffer:len() < 13 then
    return 0
  end
  pinfo.cols.protocol = "ANABRANCH"
  local tree = root:add(anabranch, buffer())
  tree:add(f.form, buffer(0, 1))
  tree:add(f.fixed, buffer(0, 1))
  if not is_handshake_form then
    dissect_data(buffer, pinfo, tree)
  else
    tree:add(f.plain, buffer(0, 1))
    if has_bit(first, 0x20) then
      dissect_plain(buffer, pinfo, tree)
    else
      dissect_handshake(buffer, pinfo, tree)
    end
  end
  return buffer:len()
end

-- Only a full first packet of the dialing side is sure to be ours: it has our version.
local function is_ours(buffer, pinfo, root)
  if buffer:len() < 1200 then
    return false
  end
  local first, version = buffer(0, 1):uint(), buffer(1, 4):uint()
  if not has_bit(first, 0x80) or not has_bit(first, 0x40) or version ~= VERSION then
    return false
  end
  anabranch.dissector(buffer, pinfo, root)
  pinfo.conversation = anabranch
  return true
end

anabranch:register_heuristic("udp", is_ours)
-- For "Decode As".
DissectorTable.get("udp.port"):add_for_decode_as(anabranch)
