# Made of template.yaml by publish.py; change that.

locals {
  given = {
    Stage                = var.stage
    Architecture         = var.architecture
    SecretsChanged       = var.secrets_changed
    SecretStore          = var.secret_store
    Receipts             = var.receipts
    ReceiptsKmsKeyArn    = var.receipts_kms_key_arn
    Notifications        = var.notifications
    EmailIdentityArn     = var.email_identity_arn
    KmsKeyArn            = var.kms_key_arn
    InboundAuthorization = var.inbound_authorization
    AllowedOrigins       = var.allowed_origins
    ThrottlingRate       = var.throttling_rate
    ThrottlingBurst      = var.throttling_burst
    RateKey              = var.rate_key
    RateTenant           = var.rate_tenant
    AuditDays            = var.audit_days
    Issuers              = var.issuers
    DomainName           = var.domain_name
    CertificateArn       = var.certificate_arn
    HostedZoneId         = var.hosted_zone_id
    BaseUrl              = var.base_url
    Streaming            = var.streaming
    Sockets              = var.sockets
    Webhooks             = var.webhooks
    TurnSeconds          = var.turn_seconds
    SignalTimeout        = var.signal_timeout
    WakeupTimeout        = var.wakeup_timeout
    InboundConcurrency   = var.inbound_concurrency
    StreamConcurrency    = var.stream_concurrency
    StreamsOfTenant      = var.streams_of_tenant
    SignalsOfTenants     = var.signals_of_tenants
    SocketConcurrency    = var.socket_concurrency
    SocketThrottlingRate = var.socket_throttling_rate
    SignalConcurrency    = var.signal_concurrency
    WakeupConcurrency    = var.wakeup_concurrency
    TableArn             = var.table_arn
    ReadCapacity         = var.read_capacity
    WriteCapacity        = var.write_capacity
    ReadCapacityMost     = var.read_capacity_most
    WriteCapacityMost    = var.write_capacity_most
    WarmReads            = var.warm_reads
    WarmWrites           = var.warm_writes
    Rollout              = var.rollout
    Workspaces           = var.workspaces
    BedrockModels        = var.bedrock_models
    Tools                = var.tools
    ToolsConcurrency     = var.tools_concurrency
    ToolsTimeout         = var.tools_timeout
    LogRetentionDays     = var.log_retention_days
    AlarmEmail           = var.alarm_email
    Alarms               = var.alarms
    ConcurrencyAlarmAt   = var.concurrency_alarm_at
  }
}
