// Flows that arrive over one bottleneck in ns-3, for comparison:
//
//     arrivals --flows=FILE --pairs=N --rate=MBIT --delay=MS --queue=PACKETS
//
// FILE has lines of start in seconds and size in bytes; flow i is of pair i mod N. With SACK,
// timestamps, and what common.h sets. Prints a line per flow that is complete: its number, and the
// seconds from the first SYN until the receiver has all bytes; then drops=N of the bottleneck.
// Built as bottleneck.cc is.
#include "common.h"

#include <fstream>
#include <iostream>
#include <vector>

using namespace common;

namespace
{

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
    auto close = [](Ptr<Socket> it) { it->Close(); };
    socket->SetCloseCallbacks(close, close);
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
    Defaults(true, 64 << 20);
    // A lost SYN is sent again after a second (RFC 6298), not after three.
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(Seconds(1)));
    // Closed sockets go soon: the tables of sockets are searched linearly.
    Config::SetDefault("ns3::TcpSocketBase::MaxSegLifetime", DoubleValue(1));
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
        Cable(std::to_string(rate) + "Mbps", std::to_string(delay) + "ms", packets - 1)
            .Install(routers);
    addresses.Assign(bottleneck);
    PointToPointHelper beside = Cable(wide, std::to_string(access) + "ms", 100000);
    std::vector<Address> ends;
    for (uint32_t pair = 0; pair < pairs; pair++)
    {
        addresses.NewNetwork();
        addresses.Assign(beside.Install(senders.Get(pair), routers.Get(0)));
        addresses.NewNetwork();
        NetDeviceContainer last = beside.Install(routers.Get(1), receivers.Get(pair));
        Ipv4Address to = addresses.Assign(last).GetAddress(1);
        ends.push_back(InetSocketAddress(to, PORT));
        Ptr<Node> receiver = receivers.Get(pair);
        Ptr<Socket> socket = Socket::CreateSocket(receiver, TcpSocketFactory::GetTypeId());
        socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), PORT));
        socket->Listen();
        auto accept = [pair](Ptr<Socket> it, const Address& from) { Accept(pair, it, from); };
        socket->SetAcceptCallback([](Ptr<Socket>, const Address&) { return true; }, accept);
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    for (uint32_t number = 0; number < flows.size(); number++)
    {
        uint32_t pair = number % pairs;
        Ptr<Node> node = senders.Get(pair);
        auto begin = [number, node, to = ends[pair]] { Begin(number, node, to); };
        Simulator::Schedule(Seconds(flows[number].start), begin);
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
