# One bottleneck in ns-2, for comparison: ns bottleneck.tcl KEY=VALUE...
#   agent=sack|newreno|vegas  n=FLOWS  seed=N  rtt=MS  queue=PACKETS  stop=S  warm=S  iw=PACKETS  alpha=A  beta=B
#   starts=S,S,… when each flow begins; without, drawn from the first second if random=1, else at 0
#   red=0|1: RED with a sixth and a half of the queue, weight .002, probability .1, gentle
# Prints one line of key=value: goodputs in Mbit/s, Jain's index, drops, mean queue and windows in packets, hops.
array set o {agent sack n 2 seed 1 rtt 20 queue 168 stop 60 warm 20 iw 10 alpha 1 beta 3 random 1 red 0 starts ""}
foreach word $argv { set pair [split $word =]; set o([lindex $pair 0]) [lindex $pair 1] }
remove-all-packet-headers
add-packet-header IP TCP Flags
set ns [new Simulator]
set draws [new RNG]
$draws seed $o(seed)
ns-random $o(seed)
set starts [split $o(starts) ,]

# 1500 bytes on the wire. These agents disagree on what a packet's headers are.
set header 52
if {$o(agent) eq "vegas"} { set header 0 }
Agent/TCP set packetSize_ [expr {1500 - $header}]
Agent/TCP set tcpip_base_hdr_size_ [expr {$header ? $header : 40}]
Agent/TCP set window_ 1000000
Agent/TCP set windowInit_ $o(iw)
Agent/TCP set windowInitOption_ 1
Agent/TCP set minrto_ 0.2
# Vegas compares round-trip times: it wants a finer clock.
Agent/TCP set tcpTick_ [expr {$o(agent) eq "vegas" ? 0.0001 : 0.001}]

foreach {key value} [list thresh_ [expr {$o(queue) / 6.0}] maxthresh_ [expr {$o(queue) / 2.0}] q_weight_ 0.002 linterm_ 10 \
    gentle_ true adaptive_ 0 bytes_ false queue_in_bytes_ false] { Queue/RED set $key $value }
set left [$ns node]
set right [$ns node]
$ns duplex-link $left $right 100Mb [expr {$o(rtt) > 50 ? 1 : 9}]ms [expr {$o(red) ? "RED" : "DropTail"}]
$ns queue-limit $left $right $o(queue)
$ns queue-limit $right $left 1000000
set bottleneck [$ns monitor-queue $left $right ""]
set integral [$bottleneck get-pkts-integrator]
set near [expr {$o(rtt) / 2.0 - ($o(rtt) > 50 ? 2 : 9.5)}]
set far [expr {$o(rtt) > 50 ? 1 : 0.5}]
for {set i 0} {$i < $o(n)} {incr i} {
    set from [$ns node]
    set to [$ns node]
    $ns duplex-link $from $left 1000Mb ${near}ms DropTail
    $ns duplex-link $right $to 1000Mb ${far}ms DropTail
    foreach {a b} [list $from $left $left $from $right $to $to $right] { $ns queue-limit $a $b 1000000 }
    switch $o(agent) {
        sack { set tcp($i) [new Agent/TCP/Sack1]; set sink [new Agent/TCPSink/Sack1] }
        newreno { set tcp($i) [new Agent/TCP/Newreno]; set sink [new Agent/TCPSink] }
        vegas {
            set tcp($i) [new Agent/TCP/Vegas]
            set sink [new Agent/TCPSink]
            $tcp($i) set v_alpha_ $o(alpha)
            $tcp($i) set v_beta_ $o(beta)
        }
    }
    $tcp($i) set fid_ $i
    $ns attach-agent $from $tcp($i)
    $ns attach-agent $to $sink
    $ns connect $tcp($i) $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp($i)
    set start [expr {$o(random) ? [$draws uniform 0 1] : 0}]
    $ns at [expr {$i < [llength $starts] ? [lindex $starts $i] : $start}] "$ftp start"
    set window($i) 0
}
set looks 0
proc look {} {
    global ns tcp window looks o
    incr looks
    for {set i 0} {$i < $o(n)} {incr i} { set window($i) [expr {$window($i) + [$tcp($i) set cwnd_]}] }
    $ns at [expr {[$ns now] + 0.01}] look
}
proc begin {} {
    global tcp base o integral before
    for {set i 0} {$i < $o(n)} {incr i} { set base($i) [$tcp($i) set ack_] }
    set before [$integral set sum_]
    # Windows are of interest under Vegas only, and looking costs time.
    if {$o(agent) eq "vegas"} look
}
proc finish {} {
    global tcp base o window looks integral before bottleneck
    $integral newpoint $o(stop) [$bottleneck set pkts_]
    set seconds [expr {double($o(stop) - $o(warm))}]
    set sum 0; set squares 0; set all 0; set windows 0; set sent 0; set delivered 0
    for {set i 0} {$i < $o(n)} {incr i} {
        set acked [$tcp($i) set ack_]
        set rate [expr {($acked - $base($i)) * 1448 * 8 / $seconds / 1e6}]
        set sum [expr {$sum + $rate}]
        set squares [expr {$squares + $rate * $rate}]
        set all [expr {$all + $acked * 1448 * 8 / double($o(stop)) / 1e6}]
        set windows [expr {$windows + $window($i) / double($looks ? $looks : 1)}]
        incr sent [$tcp($i) set ndatapack_]
        incr delivered [$tcp($i) set nackpack_]
    }
    puts "goodput=$sum goodput_all=$all jain=[expr {$sum * $sum / ($o(n) * $squares)}] drops=[$bottleneck set pdrops_]\
        queue=[expr {([$integral set sum_] - $before) / $seconds}] window=[expr {$windows / $o(n)}]\
        hops=[expr {$sent + 5 * $delivered}]"
    exit 0
}
$ns at $o(warm) begin
$ns at $o(stop) finish
$ns run
