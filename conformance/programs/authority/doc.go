// Package authority is a certificate authority for tests. It serves the modules of tests that do not import the root module.
//
// An [Authority] issues certificates for servers and clients on this machine, which are valid for an hour. Its files are in PEM
// form and readable for all, because servers and programs of a test may run as other users. They end with the test.
package authority
