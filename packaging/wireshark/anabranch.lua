-- Wireshark dissector for the datagrams of striped UDP paths, as docs/wire.md describes them.
--
-- It shows what everybody on the way can see: form, version, labels, tokens and sizes. Numbers, key
-- phase and all that is inside are protected by keys that a capture does not have.
--
--   wireshark -X lua_script:anabranch.lua capture.pcap
--
-- or copy it to the folder of personal Lua plugins (Help, About, Folders). A UDP flow is recognised
-- by its handshake. If the capture begins later, choose "Decode As... ANABRANCH" for its port.

local anabranch = Proto("anabranch", "Anabranch striped UDP path")

local VERSION = 0x616e6201
local TAG = 16
local RESET_TOKEN = 16
local MOST_VERSIONS = 16
-- The least datagram of each kind: everything in front, a number and a sealed part of four octets
-- together, and the tag.
local LEAST_DATA = 9 + 4 + TAG
local LEAST_HANDSHAKE = 13 + 4 + TAG

local KINDS = { [1] = "versions", [2] = "retry", [3] = "reset" }
local LEVELS = { [0] = "initial", [1] = "handshake" }
local FORMS = { [0] = "data", [1] = "handshake or answer" }

local f = {
    form = ProtoField.uint8("anabranch.form", "Form", base.DEC, FORMS, 0x80),
    fixed = ProtoField.uint8("anabranch.fixed", "Fixed", base.DEC, nil, 0x40),
    answer = ProtoField.bool("anabranch.answer", "Answer without state", 8, nil, 0x20),
    level = ProtoField.uint8("anabranch.level", "Level", base.DEC, LEVELS, 0x10),
    kind = ProtoField.uint8("anabranch.kind", "Kind of answer", base.DEC, KINDS, 0x03),
    version = ProtoField.uint32("anabranch.version", "Version", base.HEX),
    label = ProtoField.bytes("anabranch.label", "Label", base.NONE),
    token = ProtoField.bytes("anabranch.token", "Retry token", base.NONE),
    offered = ProtoField.uint32("anabranch.offered", "Offered version", base.HEX),
    reset = ProtoField.bytes("anabranch.reset_token", "Stateless reset token", base.NONE),
    sealed = ProtoField.bytes("anabranch.sealed", "Number and sealed part", base.NONE),
    tag = ProtoField.bytes("anabranch.tag", "Tag", base.NONE),
}
anabranch.fields = f

local malformed = ProtoExpert.new(
    "anabranch.malformed", "A datagram that the format does not have",
    expert.group.MALFORMED, expert.severity.WARN)
anabranch.experts = { malformed }

-- Adds the sealed part from `at` to the end, with the tag apart.
local function sealed(buffer, tree, at)
    tree:add(f.sealed, buffer(at, buffer:len() - TAG - at))
    tree:add(f.tag, buffer(buffer:len() - TAG, TAG))
end

local function data(buffer, tree)
    if buffer:len() < LEAST_DATA then return nil end
    tree:add(f.label, buffer(1, 8))
    sealed(buffer, tree, 9)
    return "data"
end

local function handshake(buffer, tree)
    if buffer:len() < LEAST_HANDSHAKE then return nil end
    local is_initial = bit.band(buffer(0, 1):uint(), 0x10) == 0
    tree:add(f.level, buffer(0, 1))
    tree:add(f.version, buffer(1, 4))
    tree:add(f.label, buffer(5, 8))
    local at = 13
    if is_initial then
        local len = buffer(13, 1):uint()
        at = 14 + len
        if buffer:len() < at + 4 + TAG then return nil end
        if len > 0 then tree:add(f.token, buffer(14, len)) end
    end
    sealed(buffer, tree, at)
    return is_initial and "initial" or "handshake"
end

local function answer(buffer, tree)
    local kind = bit.band(buffer(0, 1):uint(), 0x03)
    local rest = buffer:len() - 13
    if not KINDS[kind] or rest < 1 then return nil end
    tree:add(f.kind, buffer(0, 1))
    tree:add(f.version, buffer(1, 4))
    tree:add(f.label, buffer(5, 8))
    if kind == 1 then
        if rest % 4 ~= 0 or rest > 4 * MOST_VERSIONS then return nil end
        for at = 13, buffer:len() - 4, 4 do tree:add(f.offered, buffer(at, 4)) end
    elseif kind == 2 then
        if rest > 255 then return nil end
        tree:add(f.token, buffer(13))
    else
        if rest ~= RESET_TOKEN then return nil end
        tree:add(f.reset, buffer(13))
    end
    return KINDS[kind]
end

function anabranch.dissector(buffer, pinfo, root)
    if buffer:len() < 1 or bit.band(buffer(0, 1):uint(), 0x40) == 0 then return 0 end
    pinfo.cols.protocol = "ANABRANCH"
    local tree = root:add(anabranch, buffer())
    local first = buffer(0, 1):uint()
    tree:add(f.form, buffer(0, 1))
    tree:add(f.fixed, buffer(0, 1))
    local name
    if bit.band(first, 0x80) == 0 then
        name = data(buffer, tree)
    else
        tree:add(f.answer, buffer(0, 1))
        if buffer:len() >= 13 then
            name = bit.band(first, 0x20) == 0 and handshake(buffer, tree) or
                bit.band(first, 0x20) ~= 0 and answer(buffer, tree) or nil
        end
    end
    if name then
        pinfo.cols.info = name .. ", " .. buffer:len() .. " octets"
        tree:append_text(", " .. name)
    else
        pinfo.cols.info = "malformed, " .. buffer:len() .. " octets"
        tree:add_proto_expert_info(malformed)
    end
    return buffer:len()
end

-- A flow is one of these connections if a handshake packet of a known version, or an answer to an
-- unknown one, was seen in it.
local function heuristic(buffer, pinfo, root)
    if buffer:len() < LEAST_HANDSHAKE then return false end
    local is_long = bit.band(buffer(0, 1):uint(), 0xe0) == 0xc0
    if not is_long or buffer(1, 4):uint() ~= VERSION then return false end
    pinfo.conversation = anabranch
    anabranch.dissector(buffer, pinfo, root)
    return true
end

anabranch:register_heuristic("udp", heuristic)
DissectorTable.get("udp.port"):add_for_decode_as(anabranch)
