package replica

import "github.com/leasekeeper/leasekeeper/internal/replica/entry"

// isFatal reports whether err is a failure of this member, after which it must not continue.
func isFatal(err error) bool { return err != nil && !entry.IsRefusal(err) }
