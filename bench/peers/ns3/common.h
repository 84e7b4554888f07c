// What the programs for ns-3 share: cables, and TCP as ours is configured beside it.
#pragma once

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

#include <string>

namespace common
{

using namespace ns3;

const uint16_t PORT = 9;
const uint32_t PAYLOAD = 1448;

// A cable with queues of `packets` that are the only ones: no queueing discipline above the device.
inline PointToPointHelper
Cable(const std::string& rate, const std::string& delay, uint32_t packets)
{
    PointToPointHelper cable;
    cable.SetDeviceAttribute("DataRate", StringValue(rate));
    cable.SetChannelAttribute("Delay", StringValue(delay));
    StringValue limit(std::to_string(packets) + "p");
    cable.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", limit);
    cable.DisableFlowControl();
    return cable;
}

// NewReno with an initial window of ten, an acknowledgement per packet, and a least RTO of 200 ms.
inline void
Defaults(bool sack, uint32_t buffers)
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(sack));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(PAYLOAD));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    for (const char* buffer : {"SndBufSize", "RcvBufSize"})
    {
        Config::SetDefault(std::string("ns3::TcpSocket::") + buffer, UintegerValue(buffers));
    }
}

} // namespace common
