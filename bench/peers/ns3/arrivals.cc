// Flows that arrive over one bottleneck in ns-3, for comparison: arrivals --flows=FILE --pairs=N --rate=MBIT --delay=MS --queue=PACKETS
// FILE has lines of start in seconds and size in bytes; flow i is of pair i mod N. NewReno with SACK and timestamps, an initial window of
// ten, an acknowledgement per packet, a least RTO of 200 ms. Prints a line per flow that is complete: its number, and the seconds from the
// first SYN until the receiver has all bytes; then drops=N of the bottleneck. Build as bottleneck.cc.
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

using namespace ns3;

namespace
{

const uint16_t PORT = 9;
const uint32_t PAYLOAD = 1448;
// Client ports begin here, so that the receiver knows the flow by its port.
const uint32_t FIRST_PORT = 1024;

struct Flow
{
    double start;
    uint32_t size;
    uint32_t received;
    double completion;
};

std::vector<Flow> flows;
uint32_t pairs = 20;

PointToPointHelper
Cable(const std::string& rate, const std::string& delay, uint32_t packets)
{
    PointToPointHelper cable;
    cable.SetDeviceAttribute("DataRate", StringValue(rate));
    cable.SetChannelAttribute("Delay", StringValue(delay));
    cable.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue(std::to_string(packets) + "p"));
    cable.DisableFlowControl();
    return cable;
}

void
Defaults()
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    // A lost SYN is sent again after a second (RFC 6298), not after three.
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(Seconds(1)));
    // Closed sockets go soon: the tables of sockets are searched linearly.
    Config::SetDefault("ns3::TcpSocketBase::MaxSegLifetime", DoubleValue(1));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(PAYLOAD));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    for (const char* buffer : {"SndBufSize", "RcvBufSize"})
    {
        Config::SetDefault(std::string("ns3::TcpSocket::") + buffer, UintegerValue(64 << 20));
    }
}

void
Receive(uint32_t number, Ptr<Socket> socket)
{
    while (Ptr<Packet> packet = socket->Recv())
    {
        if (packet->GetSize() == 0)
        {
            break;
        }
        Flow& flow = flows[number];
        flow.received += packet->GetSize();
        if (flow.received == flow.size)
        {
            flow.completion = Simulator::Now().GetSeconds() - flow.start;
        }
    }
}

void
Accept(uint32_t pair, Ptr<Socket> socket, const Address& from)
{
    uint32_t port = InetSocketAddress::ConvertFrom(from).GetPort();
    uint32_t number = (port - FIRST_PORT) * pairs + pair;
    socket->SetRecvCallback([number](Ptr<Socket> it) { Receive(number, it); });
    // The last bytes may have come with the end of the stream.
    socket->SetCloseCallbacks([](Ptr<Socket> it) { it->Close(); }, [](Ptr<Socket> it) { it->Close(); });
}

void
Begin(uint32_t number, Ptr<Node> node, Address to)
{
    Ptr<Socket> socket = Socket::CreateSocket(node, TcpSocketFactory::GetTypeId());
    socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), FIRST_PORT + number / pairs));
    auto connected = [number](Ptr<Socket> it) {
        for (uint32_t left = flows[number].size; left > 0;)
        {
            uint32_t bytes = std::min(left, 10 * PAYLOAD);
            it->Send(Create<Packet>(bytes));
            left -= bytes;
        }
        it->Close();
    };
    socket->SetConnectCallback(connected, [](Ptr<Socket>) {});
    socket->Connect(to);
}

} // namespace

int
main(int argc, char* argv[])
{
    std::string file;
    double rate = 100;
    double delay = 10;
    double access = 1;
    uint32_t packets = 100;
    CommandLine words(__FILE__);
    words.AddValue("flows", "lines of start and size", file);
    words.AddValue("pairs", "pairs of hosts", pairs);
    words.AddValue("rate", "of the bottleneck, Mbit/s", rate);
    words.AddValue("delay", "of the bottleneck, ms", delay);
    words.AddValue("access", "delay of the other links, ms", access);
    words.AddValue("queue", "packets, the one on the wire included", packets);
    words.Parse(argc, argv);
    Defaults();
    std::ifstream lines(file);
    Flow flow{0, 0, 0, -1};
    char comma;
    while (lines >> flow.start >> comma >> flow.size)
    {
        flows.push_back(flow);
    }

    NodeContainer routers(2);
    NodeContainer senders(pairs);
    NodeContainer receivers(pairs);
    InternetStackHelper stack;
    stack.InstallAll();
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    // The device holds one more while it sends it.
    std::string wide = std::to_string(10 * rate) + "Mbps";
    NetDeviceContainer bottleneck =
        Cable(std::to_string(rate) + "Mbps", std::to_string(delay) + "ms", packets - 1).Install(routers);
    addresses.Assign(bottleneck);
    PointToPointHelper beside = Cable(wide, std::to_string(access) + "ms", 100000);
    std::vector<Address> ends;
    for (uint32_t pair = 0; pair < pairs; pair++)
    {
        addresses.NewNetwork();
        addresses.Assign(beside.Install(senders.Get(pair), routers.Get(0)));
        addresses.NewNetwork();
        Ipv4Address to = addresses.Assign(beside.Install(routers.Get(1), receivers.Get(pair))).GetAddress(1);
        ends.push_back(InetSocketAddress(to, PORT));
        Ptr<Socket> socket = Socket::CreateSocket(receivers.Get(pair), TcpSocketFactory::GetTypeId());
        socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), PORT));
        socket->Listen();
        socket->SetAcceptCallback([](Ptr<Socket>, const Address&) { return true; },
                                  [pair](Ptr<Socket> it, const Address& from) { Accept(pair, it, from); });
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    for (uint32_t number = 0; number < flows.size(); number++)
    {
        uint32_t pair = number % pairs;
        Simulator::Schedule(Seconds(flows[number].start),
                            [number, node = senders.Get(pair), to = ends[pair]] { Begin(number, node, to); });
    }
    Simulator::Stop(Seconds(flows.back().start + 60));
    Simulator::Run();
    for (uint32_t number = 0; number < flows.size(); number++)
    {
        if (flows[number].completion >= 0)
        {
            std::cout << number << " " << flows[number].completion << "\n";
        }
    }
    auto queue = DynamicCast<PointToPointNetDevice>(bottleneck.Get(0))->GetQueue();
    std::cout << "drops=" << queue->GetTotalDroppedPackets() << std::endl;
    Simulator::Destroy();
}
