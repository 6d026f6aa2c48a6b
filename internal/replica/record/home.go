package record

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// Home is what a database says of its member before the member is opened.
type Home struct {
	ClusterID, MemberID uint64
	// Contacts are the members of the cluster when this member joined it; nil if it founded its cluster.
	Contacts *logpb.Roster
	// Listed says that the database has the cluster's list of members.
	Listed bool
}

// FindHome reads the home of a member. founded is false for a database without a member.
func FindHome(db pebble.Reader) (h Home, founded bool, err error) {
	identity, contacts := new(logpb.Identity), new(logpb.Roster)
	founded, err = Load(db, KeyIdentity, identity)
	if err != nil || !founded {
		return Home{}, false, err
	}
	h.ClusterID, h.MemberID = identity.ClusterId, identity.MemberId
	joined, err := Load(db, KeyContacts, contacts)
	if err != nil {
		return Home{}, false, err
	}
	if joined {
		h.Contacts = contacts
	}
	h.Listed, err = Load(db, KeyRoster, new(logpb.Roster))
	return h, true, err
}
