package traceparent

// Key is the name of the header in HTTP, and of the metadata in gRPC.
const Key = "traceparent"

// form shows where a header has digits (x) and dashes: version, trace id, id of the parent span, flags.
const form = "xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx"

// The parts of a header.
const (
	idBegin, idEnd         = 3, 35
	parentBegin, parentEnd = 36, 52
)

// Valid reports whether text is a valid header. An id must not be zero, and the version not ff. A header of a later version is
// valid if it has the form of the first one.
func Valid(text string) bool {
	if len(text) != len(form) {
		return false
	}
	for i := range len(form) {
		c := text[i]
		isDigit := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		if form[i] == 'x' && !isDigit || form[i] == '-' && c != '-' {
			return false
		}
	}
	return text[:2] != "ff" && !isZero(text[idBegin:idEnd]) && !isZero(text[parentBegin:parentEnd])
}

func isZero(digits string) bool {
	for i := range len(digits) {
		if digits[i] != '0' {
			return false
		}
	}
	return true
}

// TraceID returns the trace id in a header, and "" if the header is not valid.
func TraceID(text string) string {
	if !Valid(text) {
		return ""
	}
	return text[idBegin:idEnd]
}
