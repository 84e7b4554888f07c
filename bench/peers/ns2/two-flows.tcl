# Two flows with round trips of their own over one bottleneck of 100 Mbit/s in ns-2: ns two-flows.tcl KEY=VALUE...
#   agent=sack|cubic  near=MS  far=MS (the two round trips)  queue=PACKETS (waiting)  red=0|1  seed=N  stop=S  warm=S
# RED: a sixth and a half of the queue, weight .002, probability .1, gentle. cubic is Linux's, in TCP-Linux.
# Senders hold packets back by up to the time of one on the bottleneck. Prints one line of key=value: goodputs in Mbit/s.
array set o {agent sack near 20 far 40 queue 167 red 0 seed 1 stop 300 warm 100}
foreach word $argv { set pair [split $word =]; set o([lindex $pair 0]) [lindex $pair 1] }
remove-all-packet-headers
add-packet-header IP TCP Flags
set ns [new Simulator]
ns-random $o(seed)
set draws [new RNG]
$draws seed [expr {1000 + $o(seed)}]

# 1500 bytes on the wire: 52 of headers, and 10 that the option of timestamps adds.
set payload [expr {$o(agent) eq "cubic" ? 1438 : 1448}]
foreach {key value} [list packetSize_ $payload tcpip_base_hdr_size_ 52 window_ 1000000 windowInit_ 10 windowInitOption_ 1 \
    minrto_ 0.2 tcpTick_ 0.001 overhead_ 0.00012] { Agent/TCP set $key $value }
foreach {key value} [list thresh_ [expr {$o(queue) / 6.0}] maxthresh_ [expr {$o(queue) / 2.0}] q_weight_ 0.002 linterm_ 10 \
    gentle_ true adaptive_ 0 bytes_ false queue_in_bytes_ false] { Queue/RED set $key $value }

proc cable {a b rate delay queue {kind DropTail}} {
    global ns
    $ns duplex-link $a $b $rate $delay $kind
    $ns queue-limit $a $b $queue
    $ns queue-limit $b $a 100000
}
set left [$ns node]
set right [$ns node]
cable $left $right 100Mb 5ms [expr {$o(queue) + 1}] [expr {$o(red) ? "RED" : "DropTail"}]
foreach flow {near far} {
    set from [$ns node]
    set to [$ns node]
    cable $from $left 1000Mb [expr {$o($flow) / 2.0 - 6}]ms 100000
    cable $right $to 1000Mb 1ms 100000
    set sink [new Agent/TCPSink/Sack1]
    if {$o(agent) eq "cubic"} {
        set tcp($flow) [new Agent/TCP/Linux]
        $tcp($flow) set timestamps_ true
        $sink set ts_echo_rfc1323_ true
        $ns at 0 "$tcp($flow) select_ca cubic"
    } else {
        set tcp($flow) [new Agent/TCP/Sack1]
    }
    $ns attach-agent $from $tcp($flow)
    $ns attach-agent $to $sink
    $ns connect $tcp($flow) $sink
    set source [new Application/FTP]
    $source attach-agent $tcp($flow)
    $ns at [$draws uniform 0 1] "$source start"
}
proc begin {} {
    global tcp base
    foreach flow {near far} { set base($flow) [$tcp($flow) set ack_] }
}
proc finish {} {
    global tcp base o payload
    foreach flow {near far} {
        set packets [expr {[$tcp($flow) set ack_] - $base($flow)}]
        puts -nonewline "$flow=[expr {$packets * $payload * 8 / 1e6 / ($o(stop) - $o(warm))}] "
    }
    puts ""
    exit 0
}
$ns at $o(warm) begin
$ns at $o(stop) finish
$ns run
