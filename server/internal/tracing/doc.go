// Package tracing connects the server's log with the traces of its clients. A request may carry the header traceparent of
// W3C Trace Context, in gRPC's metadata or in HTTP. [Log] puts the trace id into log lines about that request. [Forward]
// and [Metadata] pass the header on unchanged, to the leader and through the JSON gateway. The claims and releases on a Hold
// stream carry the header in a field of their own, and [LogID] serves their log lines.
//
// It promises that only a single valid header counts (internal/traceparent); any other is as none. So a client can put 32
// hexadecimal digits into the log, and nothing else.
//
// It makes no spans, exports nothing, and stores nothing. It reads the header only when there is something to log or to
// forward.
package tracing
