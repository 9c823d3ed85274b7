// Package wire holds the messages of git's smart protocol: one message is one
// type with its codec. It knows no HTTP, no storage and no process.
//
// The words are those of git's protocol documents. A pkt-line is a frame of 4
// hex digits and a payload; the flush-pkt (0000), delim-pkt (0001) and
// response-end-pkt (0002) are frames without one. The client's side of a fetch
// is a FetchRequest (protocol v2) or an UploadRequest (v0 and v1), of a push a
// ReceiveRequest. The server's side is an Advertisement or CapabilityList, the
// answer to ls-refs, a Report, and an ERR packet.
//
// Every reader is bounded by Limits and returns typed errors. ErrorText gives
// the text of an error that may be sent to the client.
package wire
