// Package rightsmatrix tries every call of the server as every kind of user.
//
// What it promises: a method of a service or a path of a gateway that testdata does not have fails a test. So does a route over
// HTTP, or a page or a form of the web console, that the tables of the tests do not have. For each of them a table says what
// nobody, a forged token, a stranger's certificate, a user without rights, a user with rights to half of the things, and root
// receive. The answer is the same through the leader and a follower, over gRPC and as JSON, and by a simple token, a JSON Web
// Token, a certificate, and a session of the web console. It is the same for things that exist and things that do not. The
// exceptions are requests that name the id of a lease: they say to users that an absent lease does not exist, because nobody
// has a right to it. After a right or the role root is withdrawn, a user receives what users without it receive. Streams that
// were open before end with PermissionDenied, or refuse what the right permitted; the end of a token ends none of them. Open
// pages of the web console end with the right, or with the token.
//
// How it works: the test runs two clusters of three members. One has simple tokens and no TLS. In the other one, clients and
// members have certificates, and tokens are JSON Web Tokens. The methods come from gRPC's reflection, the paths from their
// annotations, and the routes over HTTP from the source of packages server and webconsole. The requests of
// testdata/matrix.txt are in the text form of protocol buffers. Words that begin with $ are numbers of things, which each
// request gets for itself.
//
// The package has nothing but tests, and does not compare with etcd: module conformance does.
package rightsmatrix
