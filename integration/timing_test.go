package integration

import "time"

// stopLimit is how long an orderly stop may take with the race detector on a busy
// machine.
const stopLimit = 60 * time.Second

// watchEvery is how often memory is sampled.
const watchEvery = 5 * time.Millisecond
