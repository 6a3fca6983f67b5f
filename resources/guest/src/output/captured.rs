// SPDX-License-Identifier: Apache-2.0
//! What the tools printed when they were run: dbench 4.00, sysbench 1.0.20, stress-ng 0.15.06 and hackbench of rt-tests 2.4, all
//! of Debian 12, on two CPUs; ebizzy by its public description. For tests.
#![cfg(test)]

use super::Tool;

pub(super) const ALL: [(Tool, &str); 4] =
    [(Tool::Ebizzy, EBIZZY), (Tool::Dbench, DBENCH), (Tool::Sysbench, SYSBENCH), (Tool::StressNg, STRESS_NG)];

pub(super) const EBIZZY: &str = "12345 records/s\nreal 10.01 s\nuser 19.55 s\nsys   0.12 s\n";

pub(super) const HACKBENCH: &str = "\
Running in process mode with 1 groups using 40 file descriptors each (== 40 tasks)
Each sender will pass 100 messages of 100 bytes
Time: 0.149
";

pub(super) const STRESS_NG: &str = "\
stress-ng: info:  [26677] setting to a 1 second run per stressor
stress-ng: info:  [26677] dispatching hogs: 2 futex
stress-ng: metrc: [26677] stressor       bogo ops real time  usr time  sys time   bogo ops/s     bogo ops/s
stress-ng: metrc: [26677]                           (secs)    (secs)    (secs)   (real time) (usr+sys time)
stress-ng: metrc: [26677] futex             14375      1.00      0.08      0.26     14316.45       42105.66
stress-ng: info:  [26677] successful run completed in 1.01s
";

pub(super) const SYSBENCH: &str = "\
sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)

Running the test with following options:
Number of threads: 2
Initializing random number generator from current time


Initializing worker threads...

Threads started!


General statistics:
    total time:                          2.0010s
    total number of events:              946

Latency (ms):
         min:                                    1.13
         avg:                                    4.23
         max:                                   19.58
         95th percentile:                        9.06
         sum:                                 4000.18

Threads fairness:
    events (avg/stddev):           473.0000/0.00
    execution time (avg/stddev):   2.0001/0.00

";

pub(super) const DBENCH: &str = "\
dbench version 4.00 - Copyright Andrew Tridgell 1999-2004

Running for 2 seconds with load 'client.txt' and minimum warmup 0 secs
2 of 2 processes prepared for launch   0 sec
releasing clients
   2     34311   399.62 MB/sec  execute   1 sec  latency 33.474 ms
   2  cleanup   2 sec
   0  cleanup   2 sec

 Operation      Count    AvgLat    MaxLat
 ----------------------------------------
 NTCreateX      23523     0.009    16.165
 Close          17317     0.001     2.724
 Rename           992     0.023     5.808
 Unlink          4721     0.160    16.585
 Deltree            2     0.012     0.013
 Mkdir              2     0.023     0.041
 Qpathinfo      21221     0.004     7.168
 Qfileinfo       3836     0.000     0.043
 Qfsinfo         3904     0.001     0.373
 Sfileinfo       1916     0.009    10.141
 Find            8192     0.015    12.358
 WriteX         12357     0.020    17.003
 ReadX          36667     0.002     6.228
 LockX             76     0.002     0.008
 UnlockX           76     0.001     0.003
 Flush           1667     1.306    33.464

Throughput 399.623 MB/sec  2 clients  2 procs  max_latency=33.474 ms
";
