// Package traceparent reads the header traceparent of W3C Trace Context, which says to which trace a request belongs.
//
// It promises that a text which it accepts has exactly 55 bytes: the version, the trace id, the id of the parent span and
// the flags, in lower-case hexadecimal with dashes between them. Such a text is safe in metadata, in HTTP headers and in
// logs.
//
// It makes no ids and no spans, and reads no header tracestate.
package traceparent
