// One bottleneck in ns-3, for comparison:
//
//     bottleneck --n=FLOWS --sack=0|1 --seed=N --stop=S --warm=S
//
// NewReno flows, with or without SACK, over what scenarios/dumbbell.toml describes. Prints one line
// of key=value: goodputs in Mbit/s, Jain's index, drops. Build:
//
//     c++ -O2 bottleneck.cc $(pkg-config --cflags --libs \
//         ns3-point-to-point ns3-internet ns3-applications)
#include "common.h"

#include <iostream>
#include <numeric>
#include <vector>

using namespace common;

namespace
{

std::vector<double>
Received(const ApplicationContainer& sinks)
{
    std::vector<double> bytes;
    for (uint32_t i = 0; i < sinks.GetN(); i++)
    {
        bytes.push_back(DynamicCast<PacketSink>(sinks.Get(i))->GetTotalRx());
    }
    return bytes;
}

double
Sum(const std::vector<double>& values)
{
    return std::accumulate(values.begin(), values.end(), 0.0);
}

} // namespace

int
main(int argc, char* argv[])
{
    uint32_t n = 2;
    uint32_t seed = 1;
    bool sack = true;
    double stop = 60;
    double warm = 20;
    CommandLine words(__FILE__);
    words.AddValue("n", "flows", n);
    words.AddValue("sack", "selective acknowledgements", sack);
    words.AddValue("seed", "of the draws", seed);
    words.AddValue("stop", "seconds", stop);
    words.AddValue("warm", "seconds that are not measured", warm);
    words.Parse(argc, argv);
    RngSeedManager::SetRun(seed);
    Defaults(sack, 8 << 20);

    NodeContainer routers(2);
    NodeContainer senders(n);
    NodeContainer receivers(n);
    InternetStackHelper stack;
    stack.InstallAll();
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");

    // 167 wait; the device holds one more while it sends it.
    NetDeviceContainer bottleneck = Cable("100Mbps", "9ms", 167).Install(routers);
    addresses.Assign(bottleneck);
    PointToPointHelper access = Cable("1Gbps", "500us", 100000);
    ApplicationContainer sinks;
    Ptr<UniformRandomVariable> starts = CreateObject<UniformRandomVariable>();
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), PORT));
    for (uint32_t i = 0; i < n; i++)
    {
        addresses.NewNetwork();
        addresses.Assign(access.Install(senders.Get(i), routers.Get(0)));
        addresses.NewNetwork();
        NetDeviceContainer last = access.Install(routers.Get(1), receivers.Get(i));
        Ipv4Address to = addresses.Assign(last).GetAddress(1);
        sinks.Add(sink.Install(receivers.Get(i)));
        BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(to, PORT));
        bulk.SetAttribute("SendSize", UintegerValue(10 * PAYLOAD));
        bulk.Install(senders.Get(i)).Start(Seconds(starts->GetValue(0, 1)));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    std::vector<double> before;
    Simulator::Schedule(Seconds(warm), [&] { before = Received(sinks); });
    Simulator::Stop(Seconds(stop));
    Simulator::Run();

    std::vector<double> whole = Received(sinks);
    std::vector<double> steady;
    double squares = 0;
    for (uint32_t i = 0; i < n; i++)
    {
        steady.push_back((whole[i] - before[i]) * 8 / (stop - warm) / 1e6);
        squares += steady[i] * steady[i];
    }
    double sum = Sum(steady);
    auto queue = DynamicCast<PointToPointNetDevice>(bottleneck.Get(0))->GetQueue();
    std::cout << "goodput=" << sum << " goodput_all=" << Sum(whole) * 8 / stop / 1e6
              << " jain=" << sum * sum / (n * squares)
              << " drops=" << queue->GetTotalDroppedPackets() << std::endl;
    Simulator::Destroy();
}
