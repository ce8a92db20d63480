"""What the tests of several folders use: workers, servers, certificates, clients, waiting."""
