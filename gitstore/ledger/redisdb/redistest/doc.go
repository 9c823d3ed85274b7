// Package redistest starts real Redis servers for tests: one, or a cluster of
// three, on free ports of the loopback interface, with their data in a folder of
// the test. They sync each write (appendonly yes, appendfsync always), can be
// killed and started again on the same data, and end with the test.
package redistest
