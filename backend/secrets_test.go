package backend

import "testing"

func TestWithoutSecretsRemovesThem(t *testing.T) {
	for given, want := range map[string]string{
		"sqlite:/var/lib/x.db?ns=a":                                              "sqlite:/var/lib/x.db?ns=a",
		"postgres://me:word@h1:5432,h2:5432/app?ns=a":                            "postgres://me@h1:5432,h2:5432/app?ns=a",
		"postgres://h/app?user=me&password=word&ns=a":                            "postgres://h/app?user=me&ns=a",
		"postgres://h/app?sslpassword=word&passfile=%2Fx":                        "postgres://h/app?passfile=%2Fx",
		"postgres://h/app?pass%77ord=word":                                       "postgres://h/app",
		"mongodb://me:p%40ss@h/app?tlsCertificateKeyFilePassword=w&replicaSet=r": "mongodb://me@h/app?replicaSet=r",
		"mongodb://h/app?authMechanismProperties=AWS_SESSION_TOKEN:x":            "mongodb://h/app",
		"etcds://:word@h/":               "etcds://@h/",
		"leasekeepers://h1,h2/a?token=x": "leasekeepers://h1,h2/a",
		"postgres://me:wo/rd@h/":         "",
	} {
		if got := WithoutSecrets(given); got != want {
			t.Errorf("of %q is left %q, and not %q", given, got, want)
		}
	}
}
