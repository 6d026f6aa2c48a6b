// Package mongodb keeps leases in a MongoDB database.
package mongodb
